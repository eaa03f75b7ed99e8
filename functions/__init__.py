"""The order pipeline: create, validate, charge, ship, notify, each step a function on a queue of its own.

    POST /orders -> create
      order-validate -> validate
        order-payment -> charge-payment
          order-ship -> ship
            order.fulfilled -> notify
    hourly -> cleanup-stale

The queues are declared in `iii-config.yaml`. `iii-runtime dev functions` runs all of it.
"""
