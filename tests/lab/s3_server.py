"""A server of buckets as S3's: moto's, by the Python of its own environment; prints its port, ends with its stdin.

moto 5.2 names one answer by another word than S3 does, which pyarrow takes for an error: that word is put right.
"""

import os
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class RightWord:
    """The application, its answer to the end of an upload in parts as S3 words it."""

    def __init__(self, app):
        self._app = app

    def __call__(self, environ, start):
        if environ["REQUEST_METHOD"] != "POST" or "uploadId" not in environ["QUERY_STRING"]:
            return self._app(environ, start)
        begun = []
        body = b"".join(self._app(environ, lambda status, headers, *more: begun.append((status, headers))))
        body = body.replace(b"CompleteMultipartUploadResponse", b"CompleteMultipartUploadResult")
        status, headers = begun[0]
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [body]


def end_with_parent():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    app = RightWord(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=end_with_parent, daemon=True).start()
    server.serve_forever()
