//go:build hostile

package hostile

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/grapevine-epp/grapevine/internal/listen"
)

// idle is a picker that accepts everything and decides nothing. It measures the share of Envoy,
// gRPC and the machine in the latency of honest requests.
type idle struct {
	extprocv3.UnimplementedExternalProcessorServer
}

// Process answers every message with an empty mutation.
func (idle) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return nil // however it ended
		}
		answer, same := &extprocv3.ProcessingResponse{}, &extprocv3.CommonResponse{}
		switch m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			answer.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: same}}
		case *extprocv3.ProcessingRequest_RequestBody:
			answer.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: same}}
		case *extprocv3.ProcessingRequest_RequestTrailers:
			answer.Response = &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			answer.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{Response: same}}
		case *extprocv3.ProcessingRequest_ResponseBody:
			answer.Response = &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{Response: same}}
		default:
			answer.Response = &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}
		}
		if err := s.Send(answer); err != nil {
			return nil
		}
	}
}

// serveIdle serves an idle picker until in ends, and reports its address.
func serveIdle(in io.Reader, told func(address string) error) error {
	conf, err := (listen.TLS{}).Config(nil)
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)), grpc.MaxRecvMsgSize(68<<20), grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20))
	extprocv3.RegisterExternalProcessorServer(s, idle{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		s.Stop()
	}()
	if err := told(lis.Addr().String()); err != nil {
		return err
	}
	return s.Serve(lis)
}

// before is the target of an attack: the program or an idle picker.
type before struct{ url, front, pick string }

// openIdle starts an idle picker in its own process, with an Envoy in front.
func (r *rig) openIdle() before {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), honestEnv+"=idle")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	at = strings.TrimSpace(at)
	envoy := r.startEnvoy(at)
	return before{"http://" + envoy.Addr("inference"), envoy.Addr("inference"), at}
}

// idly runs an attack on the idle picker and its Envoy, together with honest requests.
func (r *rig) idly(at before, attack func(*rig) string) row {
	own := before{r.url, r.front, r.pickAt}
	defer func() { r.url, r.front, r.pickAt = own.url, own.front, own.pick }()
	r.url, r.front, r.pickAt = at.url, at.front, at.pick
	return r.beside(func() string { return attack(r) })
}
