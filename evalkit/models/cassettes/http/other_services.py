"""What tells that a connection leads to no model: its port, or the library that opens it.

The standard library alone: guarded child processes load this file by its path, without evalkit.
"""

from __future__ import annotations

from types import FrameType

# SSH, SMTP, DNS, POP, NTP, IMAP, LDAP, syslog, databases, queues, caches, traces.
OTHER_PORTS = frozenset({22, 25, 53, 88, 110, 123, 143, 389, 465, 514, 587, 636, 853, 993, 995, 1433, 1521, 1883, 2181,
    2222, 3268, 3306, 4222, 4317, 4318, 5432, 5433, 5671, 5672, 6379, 6380, 6432, 6831, 7687, 8125, 8126, 8883, 9042,
    9092, 9093, 9094, 9300, 9418, 11211, 13306, 15432, 16379, 24224, 26257, 26379, 27017, 27018, 27019, 50000,
    61613, 61616})  # fmt: skip

# Clients of databases, queues, caches, mail and telemetry, which tests often reach at a port that was drawn by lot.
_CLIENTS = """
    aio_pika aiokafka aiomcache aiomqtt aiomysql aiormq aiosmtplib asyncmy asyncpg asyncssh cassandra
    clickhouse_driver coredis datadog ftplib gmqtt hazelcast imaplib impala kafka kazoo ldap3 logging memcache motor
    mysql nats neo4j oracledb paho paramiko pg8000 pika poplib psycopg pymemcache pymongo pymysql pytds redis smtplib
    snowflake statsd stomp telnetlib thriftpy2 valkey zmq
"""
OTHER_CLIENTS = frozenset(_CLIENTS.split())


# Services over gRPC that are no model's, by the beginning of their names.
OTHER_GRPC_SERVICES = (
    *("etcdserverpb.", "grpc.health.", "grpc.reflection.", "milvus.", "opentelemetry.", "qdrant.", "temporal.api."),
    *("google.bigtable.", "google.cloud.bigquery.", "google.cloud.secretmanager.", "google.cloud.tasks."),
    *(
        "google.datastore.",
        "google.devtools.",
        "google.firestore.",
        "google.iam.",
        "google.logging.",
        "google.monitoring.",
    ),
    *("google.pubsub.", "google.spanner.", "google.storage.", "weaviate."),
)


def is_opened_by(frame: FrameType | None, packages: frozenset[str]) -> bool:
    """Return whether code of one of `packages` runs in `frame`, or led to it since the agent was called."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] in packages:
            return True
        if module.startswith("evalkit.runner"):
            return False
        frame = frame.f_back
    return False
