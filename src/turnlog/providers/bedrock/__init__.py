"""Amazon Bedrock's Converse API, of which all text models there speak the same messages.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

from turnlog.providers.bedrock.adapter import Bedrock

__all__ = ["Bedrock"]
