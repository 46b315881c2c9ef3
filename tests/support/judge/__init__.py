"""Plans and walks judged by the plain scheduler: played, searched, and bounded by an integer program."""
