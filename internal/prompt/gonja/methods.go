package gonja

import (
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// strMethodNames are gonja's methods of str that are kept.
var strMethodNames = []string{
	"capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "format", "index", "isalnum", "isalpha", "isascii",
	"isdecimal", "isdigit", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "join", "ljust", "lower", "partition",
	"removeprefix", "removesuffix", "replace", "rfind", "rjust", "rpartition", "splitlines", "startswith", "swapcase", "title", "upper", "zfill",
}

// methods are gonja's methods with Python's rules where gonja has its
// own: what is white space, and lists that can be indexed from the end.
func methods() exec.Methods {
	str := map[string]exec.Method[string]{}
	for _, name := range strMethodNames {
		if m, ok := builtins.Methods.Str.Get(name); ok {
			str[name] = m
		}
	}
	str["strip"] = strip(true, true)
	str["lstrip"] = strip(true, false)
	str["rstrip"] = strip(false, true)
	str["split"] = split(false)
	str["rsplit"] = split(true)
	out := builtins.Methods
	out.Str = exec.NewMethodSet(str)
	return out
}

func strip(left, right bool) exec.Method[string] {
	return func(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		cut := value.IsSpace
		if len(args.Args) > 0 && args.Args[0].IsString() {
			chars := args.Args[0].String()
			cut = func(r rune) bool { return strings.ContainsRune(chars, r) }
		}
		if left {
			s = strings.TrimLeftFunc(s, cut)
		}
		if right {
			s = strings.TrimRightFunc(s, cut)
		}
		return s, nil
	}
}

func split(fromRight bool) exec.Method[string] {
	return func(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		var parts []string
		if len(args.Args) == 0 || !args.Args[0].IsString() || args.Args[0].String() == "" {
			parts = strings.FieldsFunc(s, value.IsSpace)
		} else {
			parts = strings.Split(s, args.Args[0].String())
		}
		if len(args.Args) > 1 && args.Args[1].IsInteger() {
			parts = rejoin(parts, args.Args[0].String(), args.Args[1].Integer(), fromRight)
		}
		out := make(list, len(parts))
		for i, p := range parts {
			out[i] = p
		}
		return out, nil
	}
}

// rejoin undoes all splits but n.
func rejoin(parts []string, sep string, n int, fromRight bool) []string {
	extra := len(parts) - n - 1
	if n < 0 || extra <= 0 {
		return parts
	}
	if fromRight {
		return append([]string{strings.Join(parts[:extra+1], sep)}, parts[extra+1:]...)
	}
	return append(append([]string(nil), parts[:n]...), strings.Join(parts[n:], sep))
}
