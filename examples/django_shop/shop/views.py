"""The views of the shop."""

from __future__ import annotations

import json
from decimal import Decimal

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import draw_label, send_receipt

CREDIT = Decimal(10_000)


class TooDear(Exception):
    """The customer has not that much credit."""


@csrf_exempt  # for curl; forms have a token
@require_POST
def create_order(request: HttpRequest) -> HttpResponse:
    new = json.loads(request.body)
    try:
        with transaction.atomic():
            order = Order.objects.create(item=new["item"], total=Decimal(new["total"]))
            receipt = send_receipt.enqueue(order.pk)
            draw_label.using(key=f"order-{order.pk}").enqueue(order.pk)
            if order.total > CREDIT:
                raise TooDear
    except TooDear:
        return JsonResponse({"error": "that is more than your credit"}, status=422)
    return JsonResponse({"order": order.pk, "receipt": receipt.id}, status=201)


def show_order(request: HttpRequest, order_id: int) -> HttpResponse:
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"item": order.item, "receipt": order.receipt, "label": order.label})
