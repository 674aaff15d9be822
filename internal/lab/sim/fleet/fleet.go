package fleet

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
)

// Options describe many engines in one process.
type Options struct {
	Engines int         // how many; default 1
	Engine  sim.Options // of every engine; addresses and names are made here
	// Customize changes the options of engine i before it is opened; it may be
	// nil.
	Customize func(i int, o *sim.Options)

	// Host is the address of the first engine; default 127.0.0.1. With Spread,
	// engine i listens on the i-th address after it, in the loopback network;
	// without, all listen on Host.
	Host   string
	Spread bool
	// Port is the HTTP port; 0 picks free ones. Without Spread engine i takes
	// Port + i.
	Port int
	// EventPort and ReplayPort are the ports of rank 0; 0 picks free ones.
	// Without Spread engine i takes the port + i × Ranks.
	EventPort, ReplayPort int

	EndpointsFile string // written after all engines are up; "" for none
	Namespace     string // in the endpoints file; default "default"
	Labels        map[string]string
	// Describe changes the entry of engine i in the endpoints file; it may be nil.
	Describe func(i int, e *Endpoint)
}

// Fleet is a group of engines.
type Fleet struct {
	opt     Options
	engines []*sim.Engine
}

// Open opens every engine and writes the endpoints file. When one cannot
// be opened, none is left open.
func Open(o Options) (*Fleet, error) {
	if o.Engines == 0 {
		o.Engines = 1
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	f := &Fleet{opt: o}
	for i := range o.Engines {
		eo, err := o.engine(i)
		if err == nil {
			var e *sim.Engine
			if e, err = sim.Open(eo); err == nil {
				f.engines = append(f.engines, e)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("engine %d: %w", i, err), f.Close())
		}
	}
	if o.EndpointsFile != "" {
		if err := f.WriteEndpoints(o.EndpointsFile); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// engine returns the options of engine i.
func (o *Options) engine(i int) (sim.Options, error) {
	eo := o.Engine
	host, err := o.host(i)
	if err != nil {
		return eo, err
	}
	port := func(base, step int) string {
		switch {
		case base == 0:
			step = 0
		case o.Spread:
			step = base
		default:
			step = base + step*i
		}
		return net.JoinHostPort(host, strconv.Itoa(step))
	}
	eo.Name = fmt.Sprintf("engine-%d", i)
	eo.Addr = port(o.Port, 1)
	if eo.Events != nil {
		ev := *eo.Events
		ranks := max(1, eo.Ranks)
		ev.Addr = port(o.EventPort, ranks)
		if ev.Replay != sim.ReplayOff {
			ev.Replay = port(o.ReplayPort, ranks)
		}
		eo.Events = &ev
	}
	if o.Customize != nil {
		o.Customize(i, &eo)
	}
	return eo, nil
}

// host returns the address of engine i.
func (o *Options) host(i int) (string, error) {
	if !o.Spread {
		return o.Host, nil
	}
	ip := net.ParseIP(o.Host).To4()
	if ip == nil || !ip.IsLoopback() {
		return "", fmt.Errorf("%w: host %q is not in 127.0.0.0/8", sim.ErrOptions, o.Host)
	}
	n := int(ip[1])<<16 | int(ip[2])<<8 | int(ip[3])
	n += i
	ip = net.IPv4(127, byte(n>>16), byte(n>>8), byte(n)).To4()
	if n >= 1<<24-1 {
		return "", fmt.Errorf("%w: no address for engine %d after %s", sim.ErrOptions, i, o.Host)
	}
	return ip.String(), nil
}

// Engines returns the engines in order. The slice must not be changed.
func (f *Fleet) Engines() []*sim.Engine { return f.engines }

// Close closes every engine and waits.
func (f *Fleet) Close() error {
	errs := make([]error, len(f.engines))
	done := make(chan struct{})
	for i, e := range f.engines {
		go func() {
			errs[i] = e.Close()
			done <- struct{}{}
		}()
	}
	for range f.engines {
		<-done
	}
	return errors.Join(errs...)
}
