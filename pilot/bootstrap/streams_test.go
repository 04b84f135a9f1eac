package bootstrap

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

// TestStreamsOfOneConnection checks that the port for proxies bounds the streams of one connection.
func TestStreamsOfOneConnection(t *testing.T) {
	s := started(t, testOptions(t))
	conn, err := net.Dial("tcp", s.Addresses().GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			if n, _ := settings.Value(http2.SettingMaxConcurrentStreams); n != limits.Default().StreamsPerConn {
				t.Errorf("a connection may have %d streams", n)
			}
			return
		}
	}
}
