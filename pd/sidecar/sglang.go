package sidecar

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// firstRoom is the lowest room number. Engines use small numbers themselves.
const firstRoom = 1 << 20

// byRoom serves a request by two simultaneous legs.
func (x *exchange) byRoom() {
	var last *prefilled
	for i := 0; i < min(maxAttempts, len(x.targets)); i++ {
		target := x.targets[i]
		x.report.Target, x.report.Failed = x.place(i), i
		p, f := x.pair(target)
		if f == nil || !f.before {
			x.finish(f)
			return
		}
		if last = p; p.rejected {
			break
		}
		x.blame(i, p)
		if (p.fault == kvtransfer.Died || x.suspected != nil) && x.retries(p) {
			i--
			continue
		}
		if x.condemned {
			break
		}
	}
	switch {
	case last == nil || x.r.Context().Err() != nil:
	case x.condemned:
		x.condemn()
	case last.rejected: // of the two legs, this one has the reason
		x.w.Header().Set("Content-Type", last.header.Get("Content-Type"))
		x.w.WriteHeader(last.status)
		_, _ = x.w.Write(last.text) // the client may have disconnected
	default:
		x.fail(http.StatusServiceUnavailable, "no pair of prefill and decode engines could serve the request")
	}
}

// roomHeaders are the headers for host, port and room.
var roomHeaders = [3]string{"X-Override-Bootstrap-Host", "X-Override-Bootstrap-Port", "X-Override-Bootstrap-Room"}

// pair sends both legs and returns their results.
func (x *exchange) pair(target string) (*prefilled, *fault) {
	edits := x.room(target)
	body, set := x.text(), http.Header(nil)
	if x.s.o.RoomHeaders && edits[0].Value[0] == '"' { // there is no header for a batch
		set = http.Header{}
		for i, name := range roomHeaders {
			set[name] = []string{strings.Trim(string(edits[i].Value), `"`)}
		}
	} else {
		body = x.body.Pieces(edits...)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.r.Context()))
	dropped, ended := make(chan struct{}), make(chan struct{})
	var p *prefilled
	go func() {
		defer close(ended)
		if p = x.prefill(ctx, target, body, set); !p.good() {
			close(dropped)
		}
	}()
	f := x.decode(leg{body: body, header: set, cached: -1, again: true, dropped: dropped})
	cancel() // decode is done, so prefill has nothing to wait for
	<-ended
	return p, f
}

// room returns the members by which both engines meet: one room, or one per prompt of a batch and
// sample.
func (x *exchange) room(target string) []kvtransfer.Edit {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	h, port := quote(host), []byte(strconv.Itoa(x.s.o.BootstrapPort))
	n := max(kvtransfer.Prompts(x.body.Get("prompt")), kvtransfer.Prompts(x.body.Get("text")), kvtransfer.Prompts(x.body.Get("input_ids")), kvtransfer.Number(x.body.Get("n")), 1)
	draw := func() []byte {
		return strconv.AppendUint(nil, max(x.s.o.Random()>>1, firstRoom), 10)
	}
	if n == 1 {
		return []kvtransfer.Edit{{Key: "bootstrap_host", Value: h}, {Key: "bootstrap_port", Value: port}, {Key: "bootstrap_room", Value: draw()}}
	}
	rooms := make([][]byte, n)
	for i := range rooms {
		rooms[i] = draw()
	}
	return []kvtransfer.Edit{
		{Key: "bootstrap_host", Value: list(slices.Repeat([][]byte{h}, n))}, {Key: "bootstrap_port", Value: list(slices.Repeat([][]byte{port}, n))},
		{Key: "bootstrap_room", Value: list(rooms)},
	}
}

func list(values [][]byte) []byte {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}
