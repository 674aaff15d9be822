package main

import (
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// sink is a call that may block indefinitely on something outside the program.
type sink struct {
	name     string
	kind     string
	callback bool // the callee's body is followed as well
}

// pure lists functions of packages of I/O that do none.
var pure = map[string][]string{
	"os":       {"Getenv", "LookupEnv", "Getpid", "IsNotExist", "IsExist", "IsTimeout", "Error", "Name", "Expand", "ExpandEnv", "Getuid", "Is", "Perm", "Unwrap", "Timeout", "Exit"},
	"net":      {"JoinHostPort", "SplitHostPort", "ParseIP", "ParseCIDR", "String", "Equal", "Addr", "LocalAddr", "RemoteAddr", "Network", "AddrPort", "To4", "To16", "IsLoopback", "IsUnspecified", "Error", "Timeout", "Temporary", "CIDRMask", "Contains", "IPv4", "Unwrap", "MarshalText", "TCPAddrFromAddrPort", "UDPAddrFromAddrPort"},
	"net/http": {"Get#Header", "Set", "Add", "Del", "Values", "Clone", "Header", "StatusText", "NewRequest", "NewRequestWithContext", "WithContext", "Context", "CanonicalHeaderKey", "NewServeMux", "Handle", "HandleFunc", "Cookies", "UserAgent", "SetBasicAuth", "BasicAuth", "PathValue", "MaxBytesReader", "MaxBytesHandler", "HandlerFunc", "Pattern", "DetectContentType", "ProtoAtLeast", "NewResponseController", "CloseIdleConnections", "Error", "SetBody"},
	"log/slog": {"New", "NewTextHandler", "NewJSONHandler", "String", "Int", "Any", "Float64", "Duration", "Bool", "Group", "Time", "Int64", "Uint64", "With", "WithGroup", "Handler", "Enabled", "NewLogLogger", "StringValue", "AnyValue", "GroupValue", "Error", "Level", "UnmarshalText"},
	"syscall":  {"Error", "Getpid", "Is", "String", "Signal"},
}

// logging lists methods of slog's Logger and functions of the same name, and functions that print.
var logging = map[string][]string{
	"log/slog": {"Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext", "Log", "LogAttrs"},
	"log":      {"Print", "Printf", "Println", "Output"},
	"fmt":      {"Print", "Printf", "Println"},
}

// blocking lists functions of other modules that do I/O, by package and name.
var blocking = map[string][]string{
	"google.golang.org/grpc":          {"Invoke", "NewStream", "SendMsg", "RecvMsg", "CloseSend", "Serve", "Stop", "GracefulStop", "SendHeader", "Send", "Recv", "Close"},
	"github.com/nats-io/nats.go":      {"Publish", "PublishMsg", "PublishRequest", "Request", "RequestWithContext", "RequestMsgWithContext", "Flush", "FlushTimeout", "FlushWithContext", "Drain", "Close", "Subscribe", "QueueSubscribe", "ChanSubscribe", "Unsubscribe", "Connect", "NextMsg", "NextMsgWithContext"},
	"github.com/hashicorp/memberlist": {"Create", "Join", "Leave", "UpdateNode", "SendBestEffort", "SendReliable", "SendToAddress", "SendTo", "SendToUDP", "SendToTCP", "Shutdown", "Ping"},
	"github.com/fsnotify/fsnotify":    {"NewWatcher", "Add", "Remove", "Close"},
	"google.golang.org/grpc/health":   {},
	"time":                            {"Sleep"},
	"os/exec":                         {"Run", "Start", "Wait", "Output", "CombinedOutput"},
	"crypto/tls":                      {"Dial", "Handshake", "HandshakeContext", "LoadX509KeyPair", "Read", "Write", "Close"},
	"io":                              {"ReadAll", "Copy", "CopyN", "CopyBuffer", "ReadFull", "Read", "Write", "Close", "WriteString"},
	"bufio":                           {"Read", "ReadByte", "ReadString", "ReadSlice", "ReadLine", "Peek", "Flush", "Scan"},
	"path/filepath":                   {"Glob", "Walk", "WalkDir", "EvalSymlinks"},
	"github.com/prometheus/client_golang/prometheus": {"Gather"},
}

// sinkOf returns the sink that a call of fn is.
func (a *analysis) sinkOf(fn *ssa.Function, call ssa.CallInstruction) (sink, bool) {
	c := call.Common()
	if c.IsInvoke() {
		pkg := c.Method.Pkg()
		if pkg == nil {
			return sink{}, false
		}
		if pkg.Path() == "net" || pkg.Path() == "net/http" || pkg.Path() == "google.golang.org/grpc" {
			return external(pkg.Path(), pathOf(c.Value.Type()), c.Method.Name(), c.Method.Type().(*types.Signature))
		}
		return sink{}, false
	}
	if callee := c.StaticCallee(); callee != nil {
		if ours(callee) || callee.Object() == nil || callee.Object().Pkg() == nil {
			return sink{}, false
		}
		sig := callee.Signature
		recv := ""
		if sig.Recv() != nil {
			recv = pathOf(sig.Recv().Type())
		}
		return external(callee.Object().Pkg().Path(), recv, callee.Name(), sig)
	}
	if field, is := callbackField(fn, c.Value); is {
		return sink{"callback " + field, "a callback of another package", true}, true
	}
	return sink{}, false
}

// external reports whether a function of another module is a sink.
func external(pkg, recv, name string, sig *types.Signature) (sink, bool) {
	full := pkg + "." + name
	if recv != "" {
		full = recv + "." + name
	}
	if (recv == "" || strings.HasSuffix(recv, ".Logger")) && slices.Contains(logging[pkg], name) {
		return sink{"log", "logging", false}, true
	}
	if names, ok := blocking[pkg]; ok {
		return sink{full, "I/O", false}, slices.Contains(names, name)
	}
	if names, ok := pure[pkg]; ok {
		if slices.Contains(names, name) || recv == "net/http.Header" || strings.HasPrefix(name, "Set") && strings.HasSuffix(name, "Deadline") || strings.HasSuffix(name, "Addr") && sig.Params().Len() == 0 || recv == "net.IP" || recv == "net.IPNet" || strings.HasSuffix(recv, "Error") {
			return sink{}, false
		}
		return sink{full, "I/O", false}, pkg != "log/slog"
	}
	return sink{}, false
}

// callbackField returns the field of a struct of the module that a called function is read
// from, if functions of other packages can be in it. Clocks are no callbacks.
func callbackField(fn *ssa.Function, v ssa.Value) (string, bool) {
	sig, ok := v.Type().Underlying().(*types.Signature)
	if !ok || sig.Params().Len() == 0 && sig.Results().Len() == 1 && strings.HasPrefix(sig.Results().At(0).Type().String(), "time.") {
		return "", false
	}
	var t types.Type
	var index int
	switch v := v.(type) {
	case *ssa.UnOp:
		f, ok := v.X.(*ssa.FieldAddr)
		if !ok {
			return "", false
		}
		t, index = f.X.Type().Underlying().(*types.Pointer).Elem(), f.Field
	case *ssa.Field:
		t, index = v.X.Type(), v.Field
	default:
		return "", false
	}
	f := t.Underlying().(*types.Struct).Field(index)
	if !f.Exported() {
		return "", false // set within the package
	}
	return pathOf(t) + "." + f.Name(), true
}
