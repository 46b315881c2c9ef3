"""The engine, held to verdicts recorded from real kube-schedulers."""
