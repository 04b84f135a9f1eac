package xds

import (
	"net"

	"golang.org/x/sys/unix"
)

// acknowledged returns the number of bytes that the peer of a TCP connection has acknowledged, or 0 for another
// connection. A full socket takes more only when a third of it is free, which may be a megabyte later.
func acknowledged(conn net.Conn) int64 {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	var n int64
	_ = raw.Control(func(fd uintptr) { // fails for a closed connection only
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int64(info.Bytes_acked)
		}
	})
	return n
}
