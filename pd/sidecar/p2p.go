package sidecar

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// byOffloading serves a request by two simultaneous legs: decode fetches available blocks from
// prefill's peer-to-peer tier and computes the rest.
func (x *exchange) byOffloading() {
	x.inTurn(func(target string) (legs, error) {
		id := quote(x.s.o.UUID())
		peer, err := x.peer(id, target)
		if err != nil {
			return legs{}, err
		}
		asked := []any{"remote_decoder", object("kv_request_id", id)}
		if source := x.source(target); source != nil {
			asked = append(asked, "remote_kv_source", source)
		}
		return legs{
			target:  target,
			prefill: x.api.PrefillBody(&x.body, kvtransfer.Edit{Key: keyKVTransfer, Value: object(asked...)}),
			set:     object("remote_prefiller", peer),
		}, nil
	})
}

var errNoHost = errors.New("sidecar: the address has no host")

// peer returns the description of an engine's peer-to-peer tier.
func (x *exchange) peer(id []byte, target string) ([]byte, error) {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return nil, errNoHost
	}
	port, rank := x.s.o.P2PPort, 0
	if n, err := strconv.Atoi(text); err == nil && n >= x.s.o.BasePort && n < x.s.o.BasePort+max(x.s.o.Ranks, 1) {
		rank = n - x.s.o.BasePort
	}
	return object("kv_request_id", id, "remote_host", quote(host), "remote_port", []byte(strconv.Itoa(port+rank))), nil
}

// source returns the engine that holds more of the prompt than the leg's target, or nil if the
// picker names none that is allowed.
func (x *exchange) source(target string) []byte {
	list := targets(x.r.Header, request.HeaderKVSource)
	if len(list) != 1 || list[0] == target || list[0] == x.engineAddress() || target == "" && x.isSelf(list[0]) {
		return nil
	}
	if allowed := x.s.o.Targets; allowed != nil && !allowed.Source(list[0]) {
		return nil
	}
	peer, err := x.peer(quote(x.s.o.UUID()), list[0])
	if err != nil {
		return nil
	}
	return peer
}

// isSelf reports whether an address is this proxy's own, as pickers name it, or that of its engine
// behind the same host.
func (x *exchange) isSelf(address string) bool {
	local, ok := x.r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	own, err := netip.ParseAddrPort(local.String())
	named, err2 := netip.ParseAddrPort(address)
	if err != nil || err2 != nil || own.Addr().Unmap() != named.Addr().Unmap() {
		return false
	}
	port := strconv.Itoa(int(named.Port()))
	return named.Port() == own.Port() || port == x.s.engine.Port()
}

func (x *exchange) engineAddress() string { return x.s.engine.Host }

// localWithSource serves the whole request at the decode engine, with blocks from another engine's
// peer-to-peer tier.
func (x *exchange) localWithSource() {
	source := x.source("")
	if source == nil {
		x.local()
		return
	}
	x.salted()
	d := leg{body: x.body.Pieces(kvtransfer.Edit{Key: keyKVTransfer, Value: object("remote_kv_source", source)}), cached: -1, again: true}
	f := x.decode(d)
	if f != nil && f.before && x.r.Context().Err() == nil {
		x.s.m.retries.WithLabelValues("source").Inc()
		f = x.whole()
	}
	x.finish(f)
}
