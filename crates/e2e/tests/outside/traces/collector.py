"""A collector of traces: reads OTLP over HTTP and gRPC with the official packages, and keeps each span as a line of JSON.

Arguments: FILE for the lines, MODE (http, grpc, and encrypted: https, grpcs, with `cert.pem` and `key.pem` beside FILE) and an
optional PORT. With a file `FILE.refuse` every request is answered with 503. Prints its port once it listens.
"""

import concurrent.futures
import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

FILE, MODE = Path(sys.argv[1]), sys.argv[2]
PORT = int(sys.argv[3]) if len(sys.argv) > 3 else 0
REFUSE = FILE.with_name(FILE.name + ".refuse")
LOCK = threading.Lock()


def value(any_value):
    """A value of an attribute."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(one) for one in any_value.array_value.values]
    return getattr(any_value, kind)


def attributes(pairs):
    """Attributes by their names; a name that stands there twice is an error."""
    found = {pair.key: value(pair.value) for pair in pairs}
    assert len(found) == len(pairs), [pair.key for pair in pairs]
    return found


def link(one):
    """A link."""
    return {"trace": one.trace_id.hex(), "span": one.span_id.hex(), "attributes": attributes(one.attributes)}


def event(one):
    """An event."""
    return {"name": one.name, "at": one.time_unix_nano, "attributes": attributes(one.attributes)}


def keep(request, headers):
    """Writes the spans of a request down."""
    lines = []
    for group in request.resource_spans:
        resource = attributes(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
                assert span.end_time_unix_nano >= span.start_time_unix_nano > 1_700_000_000 * 10**9, span
                lines.append(
                    {
                        "resource": resource,
                        "scope": scope.scope.name,
                        "trace": span.trace_id.hex(),
                        "span": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "name": span.name,
                        "kind": trace_pb2.Span.SpanKind.Name(span.kind),
                        "begun": span.start_time_unix_nano,
                        "ended": span.end_time_unix_nano,
                        "attributes": attributes(span.attributes),
                        "events": [event(one) for one in span.events],
                        "links": [link(one) for one in span.links],
                        "status": trace_pb2.Status.StatusCode.Name(span.status.code),
                        "key": headers.get("x-collector-key", ""),
                    }
                )
    with LOCK, FILE.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


class Http(BaseHTTPRequestHandler):
    """OTLP over HTTP, in protobuf."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        answer, status = b"", 200
        if REFUSE.exists():
            status = 503
        elif self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
            status = 400
        else:
            request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            keep(request, {name.lower(): text for name, text in self.headers.items()})
            answer = trace_service_pb2.ExportTraceServiceResponse().SerializeToString()
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Says nothing."""


class Grpc(trace_service_pb2_grpc.TraceServiceServicer):
    """OTLP over gRPC."""

    def Export(self, request, context):
        if REFUSE.exists():
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again later")
        keep(request, dict(context.invocation_metadata()))
        return trace_service_pb2.ExportTraceServiceResponse()


CERTIFICATE, KEY = FILE.with_name("cert.pem"), FILE.with_name("key.pem")

FILE.touch()
if MODE in ("http", "https"):
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Http)
    if MODE == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE, KEY)
        # The handshake belongs to the thread of its connection: one that breaks off must not keep the next one waiting.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_address[1], flush=True)
    server.serve_forever()
else:
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Grpc(), server)
    address = f"127.0.0.1:{PORT}"
    if MODE == "grpcs":
        credentials = grpc.ssl_server_credentials([(KEY.read_bytes(), CERTIFICATE.read_bytes())])
        port = server.add_secure_port(address, credentials)
    else:
        port = server.add_insecure_port(address)
    server.start()
    print(port, flush=True)
    server.wait_for_termination()
