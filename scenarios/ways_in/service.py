import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from scenarios.ways_in.desk import answer


class Desk(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = answer(request)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Desk).serve_forever()
