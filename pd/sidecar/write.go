package sidecar

import (
	"net"
	"net/http"
	"strconv"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Write configures the MoRI-IO mode in which prefill engines write blocks into the decode engine's
// memory. Ports of 0 mean the defaults, 61005 to notify and 6301 for handshakes.
type Write struct {
	Parallel  bool   // send both legs simultaneously
	Local     string // address of the decode engine's pod, required
	Notify    [2]int // ports of decode and prefill engines
	Handshake [2]int
	TP        int // tensor-parallel size, 1
}

func (w *Write) complete() {
	for i := range w.Notify {
		def(&w.Notify[i], 61005)
		def(&w.Handshake[i], 6301)
	}
	def(&w.TP, 1)
}

// allLimits are limited at the top level for every kind of request if both legs are sent
// simultaneously.
var allLimits = []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"}

// asked returns the KV transfer of a prefill leg.
func (w *Write) asked(transfer []byte) []byte {
	null := []byte("null")
	return object("do_remote_decode", []byte("true"), "do_remote_prefill", []byte("false"), "remote_engine_id", null, "remote_block_ids", null,
		"remote_host", quote(w.Local), "remote_port", null, "remote_notify_port", number2(w.Notify[0]), "remote_dp_rank", []byte("0"),
		"remote_dp_rank_override", []byte("true"), "remote_handshake_port", number2(w.Handshake[0]), "transfer_id", transfer,
		"tp_size", number2(w.TP), "remote_dp_size", []byte("1"))
}

// made returns the KV transfer of a decode leg that does not wait for prefill.
func (w *Write) made(host string, transfer []byte) []byte {
	shake := number2(w.Handshake[1])
	return object("do_remote_prefill", []byte("true"), "do_remote_decode", []byte("false"),
		"remote_engine_id", quote(net.JoinHostPort(host, strconv.Itoa(w.Handshake[1]))), "remote_block_ids", []byte("[]"),
		"remote_host", quote(host), "remote_port", shake, "remote_notify_port", number2(w.Notify[1]), "remote_dp_rank", []byte("0"),
		"remote_dp_rank_override", []byte("true"), "remote_handshake_port", shake, "transfer_id", transfer,
		"tp_size", number2(w.TP), "remote_dp_size", []byte("1"))
}

func number2(n int) []byte { return []byte(strconv.Itoa(n)) }

// byWrite serves a request by two simultaneous legs, in which prefill writes into decode's memory.
// Decode's response waits until prefill has responded.
func (x *exchange) byWrite() {
	w := x.s.o.Write
	x.inTurn(func(target string) (legs, error) {
		host, _, err := net.SplitHostPort(target)
		if err != nil {
			return legs{}, err
		}
		id := x.s.o.UUID()
		transfer := quote("tx" + id)
		edits := []kvtransfer.Edit{{Key: "stream", Value: []byte("false")}, {Key: "stream_options"}, {Key: keyKVTransfer, Value: w.asked(transfer)}}
		for _, key := range allLimits {
			edits = append(edits, kvtransfer.Edit{Key: key, Value: []byte("1")})
		}
		same := http.Header{"X-Request-Id": {id}}
		return legs{
			target: target, prefill: x.body.Pieces(edits...), set: w.made(host, transfer),
			prefillHeader: same, decodeHeader: same, needs: true, waits: true,
		}, nil
	})
}
