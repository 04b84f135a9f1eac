package bootstrap

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestStreamsOfOneConnection checks that the port for proxies bounds the streams of one connection.
func TestStreamsOfOneConnection(t *testing.T) {
	s := started(t, testOptions(t))
	conn, err := net.Dial("tcp", s.Addresses().GRPC)
	must.Succeed(t, err)
	defer conn.Close()
	must.Succeed(t, conn.SetDeadline(time.Now().Add(deadline)))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	must.Succeed(t, f.WriteSettings())
	for {
		frame, err := f.ReadFrame()
		must.Succeed(t, err)
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			if n, _ := settings.Value(http2.SettingMaxConcurrentStreams); n != limits.Default().StreamsPerConn {
				t.Errorf("a connection may have %d streams", n)
			}
			return
		}
	}
}
