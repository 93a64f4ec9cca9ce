"""Prints the log of a service that mostly works."""

import random

ROUTES = ["/api/users", "/api/orders", "/health", "/api/login", "/static/app.js"]
random.seed(7)
for n in range(1500):
    day, hour, minute = 1 + n // 400, n // 60 % 24, n % 60
    stamp = f"2026-03-{day:02d}T{hour:02d}:{minute:02d}:{n * 7 % 60:02d}.{n * 131 % 1000:03d}Z"
    if n % 211 == 100:
        charge = f"ch_{random.getrandbits(48):012x}"
        print(f"{stamp} ERROR payment-{n % 5} charge {charge} declined code=card_expired_{n}")
    elif n % 97 == 50:
        query = f"q{random.getrandbits(32):08x}"
        print(f"{stamp} WARN  pool db-{n % 3} slow query {n + 900}ms id={query}")
    else:
        method, request = random.choice(["GET", "POST"]), f"{random.getrandbits(40):010x}"
        route = random.choice(ROUTES)
        print(f"{stamp} INFO  http {method} {route} 200 {random.randint(1, 90)}ms req={request}")
