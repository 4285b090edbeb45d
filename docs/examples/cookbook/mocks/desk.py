from typing import Any


def create_ticket(state: dict[str, Any]) -> dict[str, Any]:
    tickets = state.setdefault("tickets", [])
    tickets.append(f"T-{len(tickets) + 1}")
    return {"ticket_id": tickets[-1]}


def close_ticket(state: dict[str, Any], ticket_id: str) -> dict[str, Any]:
    open_tickets = [ticket for ticket in state.get("tickets", []) if ticket != ticket_id]
    return {"open": len(open_tickets)}
