"""The profile: the one document that decides how Forebay serves. See docs/profile.md.

settings   what is known about one field (type, range, meaning)
schema     the sections, Profile
load       TOML files and overrides by name
machine    facts about this machine
resolve    every "auto" decided once, with its reason: ResolvedProfile
identity   digest, answer class, diff
"""

from forebay.profile.identity import answer_class_of, diff
from forebay.profile.load import load_profile, parse_assignment, setting_name
from forebay.profile.machine import MachineFacts, read_machine
from forebay.profile.resolve import ModelFacts, ResolvedProfile, reported, resolve
from forebay.profile.schema import SETTINGS, BackendSection, KVSection, ModelSection, Profile, SchedulerSection, values
from forebay.profile.settings import AUTO, Setting

__all__ = [
    "AUTO",
    "SETTINGS",
    "BackendSection",
    "KVSection",
    "MachineFacts",
    "ModelFacts",
    "ModelSection",
    "Profile",
    "ResolvedProfile",
    "SchedulerSection",
    "Setting",
    "answer_class_of",
    "diff",
    "load_profile",
    "parse_assignment",
    "read_machine",
    "reported",
    "resolve",
    "setting_name",
    "values",
]
