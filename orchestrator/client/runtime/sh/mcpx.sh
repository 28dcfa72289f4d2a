# MCP tools, and the run's readers, for a shell script that mcpx runs:
#
#   . "$MCPX_CLIENT"
#   mcpx_call NAMESPACE TOOL ['{"json": "object"}' | -]   prints the tool's value; --raw first: its whole result
#   mcpx_emit JSON | - | -s TEXT      hands a value to the run's readers
#   mcpx_result JSON | - | -s TEXT    sets the run's result
#   mcpx_artifact NAME FILE|- [MIME]  keeps a file; prints what it became
#   mcpx_log LEVEL MESSAGE...         debug, info, warn or error
#   mcpx_input NAME                   prints an input of the run
#   mcpx_tools                        prints what may be called, as JSON
#
# Exit codes: 1 the tool reported an error, 2 the call was not carried out, or
# whether it was is not known; then standard error says why.
#
# The work is done by mcpx's own init where it can, else by curl or wget with
# awk. MCPX_HTTP=init, curl or wget chooses.

_mcpx_init=${MCPX_INIT:-/mcpx/init}

_mcpx_choose() {
	if [ -n "${MCPX_HTTP-}" ]; then
		_mcpx_http=$MCPX_HTTP
	elif [ -x "$_mcpx_init" ] && "$_mcpx_init" call -h >/dev/null 2>&1 </dev/null; then
		_mcpx_http=init
	elif command -v curl >/dev/null 2>&1; then
		_mcpx_http=curl
	elif command -v wget >/dev/null 2>&1; then
		_mcpx_http=wget
	else
		_mcpx_http=none
	fi
}
_mcpx_choose

mcpx_call() (
	raw=
	if [ "${1-}" = --raw ]; then
		raw=$1
		shift
	fi
	if [ $# -lt 2 ] || [ $# -gt 3 ]; then
		echo "usage: mcpx_call [--raw] NAMESPACE TOOL [JSON|-]" >&2
		exit 2
	fi
	if [ "$_mcpx_http" = init ]; then
		"$_mcpx_init" call $raw -- "$@"
		exit
	fi
	path=/v1/call/$(_mcpx_quote "$1")/$(_mcpx_quote "$2")
	if [ "${3-}" = - ]; then
		_mcpx_post "$path" application/json
	else
		[ $# -eq 3 ] || set -- "$1" "$2" '{}'
		printf '%s' "$3" | _mcpx_post "$path" application/json
	fi | if [ -n "$raw" ]; then _mcpx_json raw=1; else _mcpx_json; fi
)

mcpx_emit() { _mcpx_value emit "$@"; }
mcpx_result() { _mcpx_value result "$@"; }

_mcpx_value() (
	what=$1
	shift
	if [ $# -lt 1 ] || [ $# -gt 2 ] || { [ $# -eq 2 ] && [ "$1" != -s ]; }; then
		echo "usage: mcpx_$what JSON | - | -s TEXT" >&2
		exit 2
	fi
	if [ "$_mcpx_http" = init ]; then
		if [ $# -eq 1 ]; then set -- -- "$1"; fi
		"$_mcpx_init" "$what" "$@"
		exit
	fi
	if [ "$1" = -s ]; then
		_mcpx_string "$2" | _mcpx_post "/v1/$what" application/json
	elif [ "$1" = - ]; then
		_mcpx_post "/v1/$what" application/json
	else
		printf '%s' "$1" | _mcpx_post "/v1/$what" application/json
	fi | _mcpx_json silent=1
)

mcpx_log() (
	if [ $# -lt 2 ]; then
		echo "usage: mcpx_log LEVEL MESSAGE..." >&2
		exit 2
	fi
	if [ "$_mcpx_http" = init ]; then
		"$_mcpx_init" log -- "$@"
		exit
	fi
	level=$1
	shift
	printf '{"level":%s,"message":%s}' "$(_mcpx_string "$level")" "$(_mcpx_string "$*")" |
		_mcpx_post /v1/log application/json | _mcpx_json silent=1
)

mcpx_artifact() (
	if [ $# -lt 2 ] || [ $# -gt 3 ]; then
		echo "usage: mcpx_artifact NAME FILE|- [MIME]" >&2
		exit 2
	fi
	if [ "$_mcpx_http" = init ]; then
		"$_mcpx_init" artifact -- "$@"
		exit
	fi
	path="/v1/artifacts?name=$(_mcpx_quote "$1")"
	if [ "$2" = - ]; then
		_mcpx_post "$path" "${3-}"
	elif [ -r "$2" ]; then
		_mcpx_post "$path" "${3-}" <"$2"
	else
		echo "mcpx_artifact: $2 can't be read" >&2
		exit 2
	fi | _mcpx_json whole=1
)

mcpx_tools() (
	if [ "$_mcpx_http" = init ]; then
		"$_mcpx_init" tools
		exit
	fi
	_mcpx_get /v1/tools | _mcpx_json whole=1
)

mcpx_input() (
	if [ -z "${MCPX_INBOX-}" ]; then
		echo "mcpx_input: this run has no inputs; send them as options.inputs" >&2
		exit 2
	fi
	case ${1-} in
	'' | . | .. | */*)
		echo "mcpx_input: '${1-}' is not a name of an input" >&2
		exit 2
		;;
	esac
	if [ ! -f "$MCPX_INBOX/$1" ]; then
		echo "mcpx_input: '$1' is not there" >&2
		exit 2
	fi
	cat "$MCPX_INBOX/$1"
)

# _mcpx_quote escapes a path's segment.
_mcpx_quote() (
	case $1 in
	. | ..) printf '%s' "$1" | sed 's/\./%2E/g' && exit ;;
	*[!A-Za-z0-9_.~-]*) ;;
	*) printf '%s' "$1" && exit ;;
	esac
	printf '%s' "$1" | od -An -v -tx1 | tr -d ' \n' | LC_ALL=C sed 's/../%&/g'
)

# _mcpx_string makes a JSON string. A newline at the end of the text survives.
_mcpx_string() {
	printf '%s.' "$1" | LC_ALL=C awk '
		{ text = text (NR > 1 ? "\n" : "") $0 }
		END {
			text = substr(text, 1, length(text) - 1)
			for (i = 1; i < 32; i++) code[sprintf("%c", i)] = sprintf("\\u%04x", i)
			code["\n"] = "\\n"
			code["\t"] = "\\t"
			n = length(text)
			out = "\""
			for (i = 1; i <= n; i++) {
				c = substr(text, i, 1)
				if (c == "\\" || c == "\"") c = "\\" c
				else if (c in code) c = code[c]
				out = out c
			}
			printf "%s\"", out
		}'
}

# The answer's body is printed, with its status as the last line.
_mcpx_post() {
	case $_mcpx_http in
	curl)
		if [ -n "$2" ]; then set -- "$1" -H "Content-Type: $2"; else set -- "$1" -H "Content-Type:"; fi
		_mcpx_path=$1
		shift
		curl -sS --noproxy '*' -X POST "$@" -H 'Expect:' --data-binary @- -w '\n%{http_code}\n' "$MCPX_ENDPOINT$_mcpx_path"
		;;
	wget) _mcpx_wget "$1" "${2:-application/octet-stream}" ;;
	*) _mcpx_none ;;
	esac
}

_mcpx_get() {
	case $_mcpx_http in
	curl) curl -sS --noproxy '*' -w '\n%{http_code}\n' "$MCPX_ENDPOINT$1" ;;
	wget) _mcpx_wget "$1" '' ;;
	*) _mcpx_none ;;
	esac
}

_mcpx_none() {
	echo "mcpx: neither $_mcpx_init nor curl nor wget can be used here" >&2
	printf '\nerror\n'
}

# wget wants a file to send, and tells the status on standard error. BusyBox's
# keeps the text of errors to itself.
_mcpx_wget() (
	dir=$(mktemp -d) || exit 2
	trap 'rm -rf "$dir"' EXIT
	set -- "$MCPX_ENDPOINT$1" "$2"
	if wget --help 2>&1 | grep -q -- --content-on-error; then more='--content-on-error --tries=1 --no-proxy --timeout=0'; else more='-Y off -T 86400'; fi
	if [ -n "$2" ]; then
		cat >"$dir/body"
		wget -S $more -O "$dir/answer" --header "Content-Type: $2" --post-file "$dir/body" "$1" 2>"$dir/said"
	else
		wget -S $more -O "$dir/answer" "$1" 2>"$dir/said"
	fi
	status=$(LC_ALL=C sed -n 's,.*HTTP/1\.[01] \([0-9][0-9][0-9]\).*,\1,p' "$dir/said" | tail -n 1)
	[ -n "$status" ] || cat "$dir/said" >&2
	if [ -f "$dir/answer" ]; then cat "$dir/answer"; fi
	printf '\n%s\n' "${status:-error}"
)

# _mcpx_json reads an answer and its status and prints what is wanted of it:
# text without its quotes, everything else as JSON. Errors are told.
_mcpx_json() {
	LC_ALL=C awk '
	# skip finds the end of the JSON value that begins at p: the place after it.
	function skip(p,   c, depth, q) {
		depth = 0
		while (p <= n) {
			c = substr(s, p, 1)
			if (c == "\"") p = afterString(p)
			else if (c == "{" || c == "[") { depth++; p++ }
			else if (c == "}" || c == "]") { if (depth == 0) return p; depth--; p++ }
			else if (depth == 0 && c == ",") return p
			else p++
			if (depth == 0 && (c == "\"" || c == "}" || c == "]")) return p
		}
		return p
	}
	function afterString(p,   c) {
		for (p++; p <= n; p++) {
			c = substr(s, p, 1)
			if (c == "\\") p++
			else if (c == "\"") return p + 1
		}
		return p
	}
	function blank(p) {
		while (p <= n && index(" \t\r\n", substr(s, p, 1))) p++
		return p
	}
	# members notes where the values of an object lie.
	function members(p,   name, q) {
		for (p = blank(p) + 1; p <= n; p = blank(q) + 1) {
			p = blank(p)
			if (substr(s, p, 1) != "\"") return
			q = afterString(p)
			name = substr(s, p + 1, q - p - 2)
			p = blank(blank(q) + 1)
			q = skip(p)
			member[name] = substr(s, p, q - p)
			if (substr(s, blank(q), 1) != ",") return
		}
	}
	function hex(text,   i, v) {
		v = 0
		for (i = 1; i <= length(text); i++) v = v * 16 + index("0123456789abcdef", tolower(substr(text, i, 1))) - 1
		return v
	}
	function utf8(v) {
		if (v < 128) return sprintf("%c", v)
		if (v < 2048) return sprintf("%c%c", 192 + int(v / 64), 128 + v % 64)
		if (v < 65536) return sprintf("%c%c%c", 224 + int(v / 4096), 128 + int(v / 64) % 64, 128 + v % 64)
		return sprintf("%c%c%c%c", 240 + int(v / 262144), 128 + int(v / 4096) % 64, 128 + int(v / 64) % 64, 128 + v % 64)
	}
	# plain is a string without quotes and escapes; other JSON stays.
	function plain(text,   out, i, c, v, low) {
		if (substr(text, 1, 1) != "\"") return text
		text = substr(text, 2, length(text) - 2)
		out = ""
		while (i = index(text, "\\")) {
			out = out substr(text, 1, i - 1)
			c = substr(text, i + 1, 1)
			text = substr(text, i + 2)
			if (c == "n") c = "\n"
			else if (c == "t") c = "\t"
			else if (c == "r") c = "\r"
			else if (c == "b") c = "\b"
			else if (c == "f") c = "\f"
			else if (c == "u") {
				v = hex(substr(text, 1, 4))
				text = substr(text, 5)
				if (v >= 55296 && v < 56320 && substr(text, 1, 2) == "\\u") {
					low = hex(substr(text, 3, 4))
					if (low >= 56320 && low < 57344) {
						v = 65536 + (v - 55296) * 1024 + low - 56320
						text = substr(text, 7)
					}
				}
				c = utf8(v)
			}
			out = out c
		}
		return out text
	}
	function tell(text) {
		print text | "cat >&2"
		close("cat >&2")
	}
	{ line[NR] = $0 }
	END {
		status = line[NR]
		for (i = 1; i < NR; i++) s = s (i > 1 ? "\n" : "") line[i]
		n = length(s)
		if (status == "" || status == "error" || status == "000") {
			tell("mcpx: no answer, so whether it was done is not known")
			exit 2
		}
		if (status !~ /^2/) {
			members(1)
			text = "detail" in member ? plain(member["detail"]) : "HTTP status " status
			if ("code" in member) text = text " [" plain(member["code"]) "]"
			if ("hint" in member) text = text "; " plain(member["hint"])
			tell("mcpx: " text)
			exit 2
		}
		if (silent) exit 0
		if (whole) { print s; exit 0 }
		members(1)
		if (raw) { print member["raw"]; exit 0 }
		if (member["isError"] == "true") {
			tell("mcpx: " plain(member["text"]))
			exit 1
		}
		if (!("value" in member)) {
			tell("mcpx: the answer is not one of a tool call")
			exit 2
		}
		print plain(member["value"])
	}' "$@" -
}
