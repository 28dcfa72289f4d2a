#!/usr/bin/env perl
# expect: hello from perl, 3 vowels in "container"? no, 4
use strict;
use warnings;
my $word   = "container";
my $vowels = () = $word =~ /[aeiou]/g;
print qq(hello from perl, 3 vowels in "$word"? ), $vowels == 3 ? "yes" : "no, $vowels", "\n";
