"""What `explain` says about one pod."""
