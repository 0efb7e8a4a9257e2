"""Chooses what each step computes. Plain Python over token counters; no phases, no tensors."""

from forebay.scheduler.admission import Admission
from forebay.scheduler.config import SchedulerConfig
from forebay.scheduler.policy import Policy, PriorityPolicy
from forebay.scheduler.scheduler import Scheduler, SchedulerCounts, Update

__all__ = ["Admission", "Policy", "PriorityPolicy", "Scheduler", "SchedulerConfig", "SchedulerCounts", "Update"]
