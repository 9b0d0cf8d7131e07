"""Reads a mail with the library of Python, as a reader of mail would: prints its headers and both parts as JSON."""

import email
import email.policy
import json
import sys

with open(sys.argv[1], "rb") as file:
    message = email.message_from_binary_file(file, policy=email.policy.default)
print(
    json.dumps(
        {
            "headers": [[name.lower(), str(value)] for name, value in message.items()],
            "text": message.get_body(("plain",)).get_content(),
            "html": message.get_body(("html",)).get_content(),
        }
    )
)
