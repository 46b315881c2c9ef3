"""What is lost with a domain that fails, now and after the plan."""
