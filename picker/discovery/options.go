package discovery

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/internal/monotime"
)

// Defaults of FileOptions.
const (
	defaultPoll           = 10 * time.Second
	defaultSettle         = 100 * time.Millisecond
	defaultResolveEvery   = 30 * time.Second
	defaultResolveTimeout = 5 * time.Second
	maxLookups            = 16 // host names resolved at a time
)

// Resolver finds the addresses of a host name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// FileOptions open a File. Path and Sink.Tell are required.
type FileOptions struct {
	Path string
	Sink Sink // told specs sorted as in the file, a name's addresses ascending

	Poll           time.Duration // the file is read this often even if nothing says that it changed; 0 means 10 s
	Settle         time.Duration // quiet time after a change before the file is read; 0 means 100 ms
	ResolveEvery   time.Duration // host names; 0 means 30 s
	ResolveTimeout time.Duration // for one round; 0 means 5 s
	Resolver       Resolver      // nil means the system's
	NoWatch        bool          // poll only, for file systems that tell no changes

	Now func() time.Time // nil means steady.Now
}

var (
	errNoPath = errors.New("discovery: options: a path is required")
	errNoTell = errors.New("discovery: options: Sink.Tell is required")
)

func (o *FileOptions) complete() error {
	if o.Path == "" {
		return errNoPath
	}
	if o.Sink.Update == nil {
		return errNoTell
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.Poll, defaultPoll)
	set(&o.Settle, defaultSettle)
	set(&o.ResolveEvery, defaultResolveEvery)
	set(&o.ResolveTimeout, defaultResolveTimeout)
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Sink.Log == nil {
		o.Sink.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	return nil
}

// cause words an error of the file system without the path, which the problem
// has already.
func cause(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
