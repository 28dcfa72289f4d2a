#!/usr/bin/env ruby
# expect: hello from ruby, reversed: ybur
puts "hello from ruby, reversed: #{'ruby'.reverse}"
