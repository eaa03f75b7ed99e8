"""Errors over http, in the form the runtime itself gives them."""

from typing import Any

from iii_runtime import ApiResponse, current_invocation


def error_response(status_code: int, code: str, message: str) -> ApiResponse[dict[str, Any]]:
    """Return `{"error": {"code", "message", "error_id"}}`; the id names the invocation."""
    invocation = current_invocation()
    error = {"code": code, "message": message, "error_id": invocation.id if invocation else None}
    return ApiResponse(status_code=status_code, body={"error": error})
