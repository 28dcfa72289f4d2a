#!/usr/bin/env php
<?php
// expect: hello from php, sorted: a, b, c
$letters = ['c', 'a', 'b'];
sort($letters);
echo 'hello from php, sorted: ', implode(', ', $letters), "\n";
