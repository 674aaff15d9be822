package gate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// noop answers every message without looking at it: headers with a fixed destination,
// body chunks with themselves.
type noop struct {
	extproc.UnimplementedExternalProcessorServer
	destination []byte
}

// ServeNoop serves external processing on the address with TLS until ctx ends. It sends
// every request to destination.
func ServeNoop(ctx context.Context, address, destination string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	const window = 16 << 20
	s := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}})),
		grpc.MaxRecvMsgSize(128<<20), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
	extproc.RegisterExternalProcessorServer(s, &noop{destination: []byte(destination)})
	healthy := health.NewServer() // Envoy asks for it before it sends requests
	healthy.SetServingStatus(extproc.ExternalProcessor_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(s, healthy)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Process implements the service.
func (n *noop) Process(s extproc.ExternalProcessor_ProcessServer) error {
	duplex := false
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if c := m.GetProtocolConfig(); c != nil {
			duplex = c.GetRequestBodyMode() == filter.ProcessingMode_FULL_DUPLEX_STREAMED
		}
		if a := n.answer(m, duplex); a != nil {
			if err := s.Send(a); err != nil {
				return err
			}
		}
	}
}

func (n *noop) answer(m *extproc.ProcessingRequest, duplex bool) *extproc.ProcessingResponse {
	switch r := m.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		set := []*core.HeaderValueOption{{Header: &core.HeaderValue{Key: "x-gateway-destination-endpoint", RawValue: n.destination}}}
		common := &extproc.CommonResponse{HeaderMutation: &extproc.HeaderMutation{SetHeaders: set}}
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{Response: common}}}
	case *extproc.ProcessingRequest_RequestBody:
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: echo(r.RequestBody, duplex)}}
	case *extproc.ProcessingRequest_ResponseHeaders:
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extproc.HeadersResponse{}}}
	case *extproc.ProcessingRequest_ResponseBody:
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: echo(r.ResponseBody, duplex)}}
	}
	return nil
}

// echo returns the chunk itself in full duplex, and no change otherwise.
func echo(b *extproc.HttpBody, duplex bool) *extproc.BodyResponse {
	if !duplex {
		return &extproc.BodyResponse{}
	}
	chunk := &extproc.StreamedBodyResponse{Body: b.GetBody(), EndOfStream: b.GetEndOfStream()}
	return &extproc.BodyResponse{Response: &extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{
		Mutation: &extproc.BodyMutation_StreamedResponse{StreamedResponse: chunk}}}}
}
