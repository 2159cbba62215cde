"""Faults on purpose: a storm over real worker processes (`chaos`), a death or a lost connection at every single request
(`steps`), and defects put into the code to see whether they are noticed (`mutants`).

`scripts/chaos`, `scripts/steps` and `scripts/mutants` run them.
"""
