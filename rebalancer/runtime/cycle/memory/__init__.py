"""What is known of former cycles, and what follows from it for this one."""
