package server

import "net"

// ExtProcAddr is where the ext_proc service listens.
func (s *Server) ExtProcAddr() net.Addr { return s.extproc.Addr() }

// AdminAddr is where metrics and status are served.
func (s *Server) AdminAddr() net.Addr { return s.admin.Addr() }
