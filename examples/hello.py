#!/usr/bin/env python3
# expect: hello from python, 2**64 is 18446744073709551616
print(f"hello from python, 2**64 is {2**64}")
