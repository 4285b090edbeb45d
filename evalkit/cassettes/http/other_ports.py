"""Ports at which no model answers.

The standard library alone: guarded child processes load this file by its path, without evalkit.
"""

# SSH, SMTP, DNS, POP, NTP, IMAP, LDAP, syslog, databases, queues, caches, traces.
OTHER_PORTS = frozenset({22, 25, 53, 88, 110, 123, 143, 389, 465, 514, 587, 636, 853, 993, 995, 1433, 1521, 1883, 2181,
    2222, 3268, 3306, 4222, 4317, 4318, 5432, 5433, 5671, 5672, 6379, 6380, 6432, 6831, 7687, 8125, 8126, 8883, 9042,
    9092, 9093, 9094, 9300, 9418, 11211, 13306, 15432, 16379, 24224, 26257, 26379, 27017, 27018, 27019, 50000,
    61613, 61616})  # fmt: skip
