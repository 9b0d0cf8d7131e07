"""The job's side of an async tool: takes a deployment, works on it, and reports back, signed. No libraries needed.

python3 deploy_preview.py PORT
"""

import hashlib
import hmac
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def report(job, body):
    """Tells the server, until it is taken: 425, 429 and 503 mean later, anything else is final."""
    raw = json.dumps(body).encode()
    signature = hmac.new(job["callbackSecret"].encode(), raw, hashlib.sha256).hexdigest()
    headers = {"content-type": "application/json", "X-Webhook-Signature": f"sha256={signature}"}
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(job["callbackURL"], raw, headers)) as answer:
                print("reported:", json.load(answer), flush=True)
                return
        except urllib.error.HTTPError as error:
            if error.code not in (425, 429, 503):
                print("refused:", error.code, error.read().decode(), flush=True)
                return
            time.sleep(float(error.headers.get("Retry-After", 1)))
        except urllib.error.URLError:
            # The server is away. It may be restarting; the call waits in its database.
            time.sleep(1)


def deploy(job):
    """The work itself: here it takes a second."""
    time.sleep(1)
    branch = job["input"]["branch"]
    url = f"https://{branch}.preview.example.com"
    report(job, {
        "pendingID": job["pendingID"],
        "result": {
            "title": "Deployment Complete",
            "output": f"Preview deployed to {url}",
            "metadata": {"url": url, "deploymentID": f"deploy-{branch}"},
        },
    })


class Deployments(BaseHTTPRequestHandler):
    def do_POST(self):
        job = json.loads(self.rfile.read(int(self.headers["content-length"])))
        threading.Thread(target=deploy, args=(job,), daemon=True).start()
        answer = json.dumps({
            "externalRef": f"deploy-{job['input']['branch']}",
            "estimatedDuration": 1000,
            "output": f"Deploying {job['input']['branch']} …",
        }).encode()
        self.send_response(202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Deployments)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
