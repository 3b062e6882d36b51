"""Workers of Celery whose processes are killed: the app, its load, the killing, and what the tasks noted."""
