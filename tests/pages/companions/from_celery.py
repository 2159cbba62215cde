"""A queue with a task that follows another; after the page a message of Celery's that is passed on, twice."""

from sqlalchemy import create_engine

from dibs import Dibs

app = Dibs()
app.migrate()
engine = create_engine("sqlite:///dibs.db")


@app.task
def ship(order_id: int) -> None: ...


def after():
    """What follows is enqueued once; and a message that Celery delivers twice is one job."""
    import shop_celery
    import shop_jobs

    packed = pack.enqueue(7)  # noqa: F821
    pack.app.worker(burst=True).run()  # noqa: F821
    assert [job.payload for job in shop_jobs.app.jobs(status="done") if job.task == "page.ship"] == [{"order_id": 7}]
    assert packed.join(5) is None
    for _ in range(2):
        shop_celery.send_receipt.apply(args=[7], task_id="f00d", throw=True)  # run here, without a broker
    (job,) = shop_jobs.app.jobs(queue="mail")
    assert (job.task, job.task_key, job.duplicates) == ("receipt", "celery-f00d", 1)
    shop_jobs.app.worker(burst=True, queues=["mail"]).run()
    assert shop_jobs.app.job(job.id).result == "receipt for order 7"
