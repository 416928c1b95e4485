// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// Config says how a client reaches its server.
type Config struct {
	Network       string // sctp, sctp+udp, or of one family
	Local         string // addresses and port of ours, as "host/host:port"; ":0" is all
	UDPPort       int    // of ours; 0 is any
	HideAddresses bool
	Parameters    sctp.Parameters
	Primary       netip.Addr // address of ours that the server is asked to send to; invalid: it decides
	Recorder      *Recorder  // nil: nothing is written down
}

// Client is an association with a server.
type Client struct {
	conn     *sctp.Conn
	recorder *Recorder // nil: none
	number   uint16    // of the last transfer
	buffer   []byte
	begun    map[uint16][]byte // messages of which parts have come, by their streams
	held     int               // octets of these
}

// Dial sets up an association with a server. The sockets live in the network namespace of the calling thread.
func Dial(ctx context.Context, c Config, server string) (*Client, error) {
	config := sctp.Config{Parameters: &c.Parameters, UDPPort: c.UDPPort, HideAddresses: c.HideAddresses}
	if c.UDPPort == 0 {
		config.UDPPort = sctp.AnyPort
	}
	e, err := config.Open(ctx, c.Network, c.Local)
	if err != nil {
		return nil, err
	}
	c.Recorder.capture(e)
	conn, err := e.Dial(ctx, server)
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	client := &Client{conn: conn, recorder: c.Recorder, buffer: make([]byte, transfer.DataHeader+transfer.MaxData+1)}
	_ = e.Close() // once the association has ended
	if c.Primary.IsValid() {
		if err := conn.Prefer(c.Primary); err != nil {
			client.Abort()
			return nil, fmt.Errorf("the server cannot be asked to send to %s: %w", c.Primary, err)
		}
	}
	return client, nil
}

// Conn is the association.
func (c *Client) Conn() *sctp.Conn { return c.conn }

// Close ends the association in order.
func (c *Client) Close(ctx context.Context) error {
	err := c.conn.Shutdown(ctx)
	if err == nil {
		c.recorder.awaitEnd(ctx)
	}
	return err
}

// Abort ends it at once.
func (c *Client) Abort() { c.conn.Abort("not wanted any more") }

// errStream is of messages that came where they do not belong.
var errStream = errors.New("the server has sent a message by a stream that is not its")

// next reads a message of the server.
func (c *Client) next() (m transfer.Message, stream uint16, err error) {
	var whole []byte
	for whole == nil {
		n, info, err := c.conn.ReadMessage(c.buffer)
		if err != nil {
			return nil, 0, err
		}
		if whole, err = c.join(c.buffer[:n], &info); err != nil {
			return nil, 0, err
		}
		stream = info.Stream
	}
	m, err = transfer.Parse(whole)
	if _, data := m.(*transfer.Data); err == nil && data == (stream == transfer.ControlStream) {
		err = errStream
	}
	return m, stream, err
}

// join puts a message together that comes in parts, since it is large or others are being received: parts of other streams
// may stand between them. whole is nil until the last one.
func (c *Client) join(part []byte, info *sctp.MessageInfo) (whole []byte, err error) {
	begun, goesOn := c.begun[info.Stream]
	if info.PPID != transfer.PPID || info.Unordered || info.First == goesOn {
		return nil, transfer.ErrMessage
	}
	if info.First && info.Last {
		return part, nil
	}
	begun = append(begun, part...)
	if c.held += len(part); len(begun) > transfer.DataHeader+transfer.MaxData || c.held > maxAhead {
		return nil, transfer.ErrMessage
	}
	if info.Last {
		c.held -= len(begun)
		delete(c.begun, info.Stream)
		return begun, nil
	}
	if c.begun == nil {
		c.begun = map[uint16][]byte{}
	}
	c.begun[info.Stream] = begun
	return nil, nil
}

func (c *Client) write(m transfer.Message) error {
	return c.conn.WriteMessage(m.Append(nil), sctp.Message{Stream: transfer.ControlStream, PPID: transfer.PPID})
}

// maxListed is how many sources a list has at most; our servers have some 10,000.
const maxListed = 100_000

// errEndless is of a list that has more.
var errEndless = fmt.Errorf("the server lists more than %d sources", maxListed)

// List lists all sources of the server.
func (c *Client) List(ctx context.Context) (all []transfer.Entry, err error) {
	defer context.AfterFunc(ctx, c.Abort)()
	after := ""
	for {
		c.number++
		if err := c.write(&transfer.List{Transfer: c.number, After: after}); err != nil {
			return nil, err
		}
		m, _, err := c.next()
		if err != nil {
			return nil, err
		}
		list, ok := m.(*transfer.Entries)
		if !ok || list.Transfer != c.number {
			return nil, transfer.ErrMessage
		}
		if all = append(all, list.List...); !list.More {
			return all, nil
		}
		if len(all) > maxListed {
			return nil, errEndless
		}
		if next := list.List[len(list.List)-1].Name; next <= after {
			return nil, transfer.ErrMessage // for ever
		}
		after = list.List[len(list.List)-1].Name
	}
}

// cancelWait is how long the server has to end a transfer that was cancelled.
const cancelWait = 2 * time.Second
