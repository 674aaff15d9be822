package podkit

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// WaitReady waits until the startup, liveness and readiness probes of all containers succeed, then
// reports the pod as ready to the API server and to Services.
func (p *Pod) WaitReady() {
	p.k.tb.Helper()
	p.WaitServing()
	p.k.c.Ready(p.Namespace, p.Name, p.IP, true)
}

// WaitServing is like WaitReady, and does not need the API server.
func (p *Pod) WaitServing() {
	p.k.tb.Helper()
	for name, r := range p.containers {
		for _, q := range []*probe{r.spec.Startup, r.spec.Live, r.spec.Ready} {
			if q == nil {
				continue
			}
			var err error
			defer func() {
				if p.k.tb.Failed() && err != nil {
					p.k.tb.Logf("the last probe of container %s: %v", name, err)
				}
			}()
			p.k.c.Until("the probes of container "+name+" of pod "+p.Name+" succeed", func() bool {
				select {
				case <-r.done:
					p.k.tb.Fatalf("container %s of pod %s ended with %d:\n%s", name, p.Name, r.cmd.ProcessState.ExitCode(), last(p.Log(name)))
				default:
				}
				err = p.probe(r.spec, q)
				return err == nil
			})
		}
	}
	p.SetReady(true)
}

// Probe runs the liveness and readiness probes of all containers once.
func (p *Pod) Probe() error {
	for _, r := range p.containers {
		for _, q := range []*probe{r.spec.Live, r.spec.Ready} {
			if q == nil {
				continue
			}
			if err := p.probe(r.spec, q); err != nil {
				return err
			}
		}
	}
	return nil
}

// probe runs a probe once from the node.
func (p *Pod) probe(c *container, q *probe) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch {
	case q.GRPC != nil:
		return probeGRPC(ctx, net.JoinHostPort(p.IP, strconv.Itoa(q.GRPC.Port)), q.GRPC.Service)
	case q.HTTP != nil:
		if q.HTTP.Scheme == "HTTPS" {
			return fmt.Errorf("the kit does not support probes over HTTPS")
		}
		return probeHTTP(ctx, fmt.Sprintf("http://%s%s", net.JoinHostPort(p.IP, strconv.Itoa(c.port(q.HTTP.Port))), q.HTTP.Path))
	}
	return fmt.Errorf("container %s: the kit does not support this kind of probe", c.Name)
}

// port returns a port by its number or name.
func (c *container) port(value json.RawMessage) (number int) {
	if json.Unmarshal(value, &number) == nil {
		return number
	}
	var name string
	_ = json.Unmarshal(value, &name) // a number or a name
	for _, p := range c.Ports {
		if p.Name == name {
			return p.Port
		}
	}
	return 0
}

func probeGRPC(ctx context.Context, address, service string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	if s := answer.GetStatus(); s != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("service %q is %v", service, s)
	}
	return nil
}

func probeHTTP(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 400 {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}
