//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// pod is a pod of a Deployment with its own loopback address.
type pod struct {
	namespace, name string
	labels          map[string]string
	ip              string
	ready           bool
	picker          *exec.Cmd // nil for a model server
	log             parts.Output
	exited          chan struct{}
	servers         []*http.Server
}

// config is the configuration of the suite's own picker: it follows the suite's header.
const config = `{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[{"type":"header-based-testing-filter"},{"type":"queue-scorer"},{"type":"max-score-picker"}],` +
	`"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"header-based-testing-filter"},{"pluginRef":"queue-scorer"},{"pluginRef":"max-score-picker"}]}]}`

// deploy starts the pods of a Deployment and reports when they are ready.
func (s *stub) deploy(d *deployment) {
	ready := 0
	for i := range max(d.Spec.Replicas, 1) {
		name := fmt.Sprintf("%s-%d", d.Meta.Name, i)
		p := s.pods[d.Meta.Namespace+"/"+name]
		if p == nil {
			p = s.newPod(d, name)
		}
		if p.ready == p.gone() && p.ready != p.probe() {
			p.ready = !p.ready
			is := map[bool]string{true: "True", false: "False"}[p.ready]
			s.c.PatchStatus(kubekit.Pods, p.namespace, p.name, fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}],"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, p.ip, p.ip, is, s.began))
		}
		if p.ready {
			ready++
		}
	}
	if d.Meta.UID == "" {
		return
	}
	s.status(deployments, d.Meta, map[string]any{"replicas": d.Spec.Replicas, "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": d.Spec.Replicas, "observedGeneration": d.Meta.Generation})
}

func (s *stub) newPod(d *deployment, name string) *pod {
	template := &d.Spec.Template
	p := &pod{namespace: d.Meta.Namespace, name: name, labels: template.Meta.Labels, ip: fmt.Sprintf("127.0.2.%d", len(s.pods)+1), exited: make(chan struct{})}
	s.pods[p.namespace+"/"+name] = p
	labels, err := json.Marshal(p.labels)
	if err != nil {
		s.t.Error(err)
	}
	s.c.Create(kubekit.Pods, p.namespace, fmt.Sprintf(`{"metadata":{"name":%q,"labels":%s},"spec":{"containers":[{"name":"c","image":"i"}]}}`, name, labels))
	for i := range template.Spec.Containers {
		c := &template.Spec.Containers[i]
		if slices.Contains(c.Args, "--pool-name") {
			s.startPicker(p, c.Args)
			continue
		}
		for port, h2c := range map[string]bool{env(c, "HTTP_PORT", "3000"): false, env(c, "H2C_PORT", "3001"): true} {
			s.startEcho(p, port, h2c, env(c, "INCLUDE_HTTP_PORT_HEADER", "") == "true")
		}
	}
	return p
}

func env(c *container, name, value string) string {
	for _, e := range c.Env {
		if e.Name == name && e.Value != "" {
			return e.Value
		}
	}
	return value
}

// startPicker runs grapevine with the arguments of the suite's Deployment. It adds the listening
// addresses, since all pods are on one machine, the pod's name, and the configuration for the
// suite's header.
func (s *stub) startPicker(p *pod, args []string) {
	args = append(slices.Clone(args), "--listen", p.ip+":9002", "--health", p.ip+":9003", "--admin", p.ip+":9090",
		"--kubeconfig", s.c.Kubeconfig("epp"), "--config-text", config, "--name", p.name)
	p.picker = exec.Command(s.binary, args...) // without a subcommand, as the image runs it
	p.picker.Stdout, p.picker.Stderr = &p.log, &p.log
	p.picker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.picker.Start(); err != nil {
		s.t.Error(err)
		return
	}
	go func() {
		_ = p.picker.Wait() // the log has the reason
		close(p.exited)
	}()
}

// gone reports whether the pod's process has ended. The stub does not restart it.
func (p *pod) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// probe runs the readiness probe as the kubelet does.
func (p *pod) probe() bool {
	if p.picker == nil {
		return true
	}
	conn, err := grpc.NewClient(p.ip+":9003", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "inference-extension"})
	return err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
}

func (p *pod) end() {
	if p.picker != nil && p.picker.Process != nil {
		_ = p.picker.Process.Kill() // may already have ended
		<-p.exited
	}
	for _, server := range p.servers {
		_ = server.Close()
	}
}

// startEcho returns the request in its answer, as echo-basic does.
func (s *stub) startEcho(p *pod, port string, h2c, tellPort bool) {
	lis, err := net.Listen("tcp", net.JoinHostPort(p.ip, port))
	if err != nil {
		s.t.Error(err)
		return
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers := r.Header.Clone()
		answer := map[string]any{"path": r.RequestURI, "host": r.Host, "method": r.Method, "proto": r.Proto, "headers": headers, "namespace": p.namespace, "pod": p.name}
		if tellPort {
			answer["httpPort"] = port
		}
		for pair := range strings.SplitSeq(r.Header.Get("X-Echo-Set-Header"), ",") {
			if name, value, ok := strings.Cut(pair, ":"); ok {
				w.Header().Set(strings.TrimSpace(name), strings.TrimSpace(value))
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})}
	if h2c {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	p.servers = append(p.servers, server)
	go func() { _ = server.Serve(lis) }() // until the test ends
}
