// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// ControlSocket is a connection to the control socket of hostapd or wpa_supplicant: requests, and events once they
// were asked for.
type ControlSocket struct{ conn *net.UnixConn }

// controlTimeout bounds the wait for an answer.
const controlTimeout = 20 * time.Second

// DialControl connects to a control socket, from a socket beside it. Requests, which wait for their answers, and
// events take a connection each.
func DialControl(path, name string) (*ControlSocket, error) {
	local := path + "." + name
	_ = os.Remove(local) // of a run that was killed
	c, err := net.DialUnix("unixgram", &net.UnixAddr{Name: local, Net: "unixgram"}, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	return &ControlSocket{c}, nil
}

// Ask gives a command, such as STATUS, and returns its answer. A refusal is an error.
func (c *ControlSocket) Ask(command string) (string, error) {
	if err := c.conn.SetDeadline(time.Now().Add(controlTimeout)); err != nil {
		return "", err
	}
	if _, err := c.conn.Write([]byte(command)); err != nil {
		return "", err
	}
	answer, err := c.read()
	if err == nil && (strings.HasPrefix(answer, "FAIL") || strings.HasPrefix(answer, "UNKNOWN COMMAND")) {
		err = fmt.Errorf("%s was answered with %s", command, strings.TrimSpace(answer))
	}
	return answer, err
}

// Attach asks for events. [ControlSocket.Event] reads them from then on.
func (c *ControlSocket) Attach() error {
	if _, err := c.Ask("ATTACH"); err != nil {
		return err
	}
	return c.conn.SetDeadline(time.Time{})
}

// Event waits for the next one, such as AP-STA-CONNECTED 02:00:00:00:00:01, and returns it without its level. It
// fails once the connection is closed.
func (c *ControlSocket) Event() (string, error) {
	text, err := c.read()
	if _, event, levelled := strings.Cut(text, ">"); levelled && strings.HasPrefix(text, "<") {
		text = event
	}
	return text, err
}

func (c *ControlSocket) read() (string, error) {
	b := make([]byte, 8192)
	n, err := c.conn.Read(b)
	return string(b[:n]), err
}

// Close ends the connection.
func (c *ControlSocket) Close() error {
	local := c.conn.LocalAddr().String()
	err := c.conn.Close()
	_ = os.Remove(local)
	return err
}
