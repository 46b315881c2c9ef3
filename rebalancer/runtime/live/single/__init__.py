"""One cycle as a person or a CronJob runs it, with what it needs around it."""
