"""The months that the page exports, one page after the other."""

written = []


def count_pages(month):
    return 3


def write_page(month, page):
    written.append((month, page))
