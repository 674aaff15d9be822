package sim

import (
	"fmt"
	"net"
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
)

// openPublishers binds one publisher per rank on consecutive ports.
func openPublishers(o *Options, httpAddr string, firstSeq uint64) ([]*kvstream.Publisher, error) {
	host, _, err := net.SplitHostPort(httpAddr)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	ev := o.Events
	if ev.Addr == "" {
		ev.Addr = net.JoinHostPort(host, "0")
	}
	if ev.Replay == "" {
		ev.Replay = net.JoinHostPort(host, "0")
	}
	const attempts = 20 // free ports in a row must be found by trying
	for range attempts {
		var pubs []*kvstream.Publisher
		if pubs, err = tryPublishers(o, firstSeq); err == nil {
			ev.Addr = pubs[0].Addr() // a restart binds the same ports
			if ev.Replay != ReplayOff {
				ev.Replay = pubs[0].ReplayAddr()
			}
			return pubs, nil
		}
	}
	return nil, fmt.Errorf("sim: %w", err)
}

// ReplayOff as EventOptions.Replay leaves the replay socket out.
const ReplayOff = "off"

func tryPublishers(o *Options, firstSeq uint64) (pubs []*kvstream.Publisher, err error) {
	ev := o.Events
	addr, replay := ev.Addr, ev.Replay
	if replay == ReplayOff {
		replay = ""
	}
	for r := range o.Ranks {
		p, err := kvstream.Open(kvstream.Options{
			Addr: addr, ReplayAddr: replay, Topic: ev.Topic, Ring: ev.Ring, HWM: ev.HWM, ShortReply: ev.ShortReply, FirstSeq: firstSeq,
		})
		if err != nil {
			for _, open := range pubs {
				_ = open.Close()
			}
			return nil, err
		}
		pubs = append(pubs, p)
		if r+1 < o.Ranks {
			addr, replay = nextPort(p.Addr()), nextPort(p.ReplayAddr())
		}
	}
	return pubs, nil
}

func nextPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(n+1))
}
