package server

import "net"

// ExtProcAddr returns the address of the ext_proc service.
func (s *Server) ExtProcAddr() net.Addr { return s.extproc.Addr() }

// AdminAddr returns the address of metrics and status.
func (s *Server) AdminAddr() net.Addr { return s.admin.Addr() }
