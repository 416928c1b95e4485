// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
)

// phone is a terminal of plain sockets.
type phone struct {
	t         *testing.T
	w         *world
	name      string
	transport string
	conn      net.Conn
	buffer    []byte
	cseq      int
	callID    string
	nonces    map[string]uint32
	// secret answers a challenge; nil: by the password, which is the name.
	secret func(c *digest.Challenge) (password string, auts string)
}

var lastPhone atomic.Int64

// phone opens a phone at a terminal's address, 1 to 4 of the server's family.
func (w *world) phone(name, transport, server string, terminal int) *phone {
	w.t.Helper()
	p := &phone{t: w.t, w: w, name: name, transport: transport, nonces: map[string]uint32{}, callID: fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "@", "-"), lastPhone.Add(1))}
	local := fmt.Sprintf("[2001:db8::%d]:0", terminal)
	if netip.MustParseAddr(server).Is4() {
		local = fmt.Sprintf("192.0.2.%d:0", terminal)
	}
	p.conn = w.dial(transport, local, server)
	w.t.Cleanup(func() { p.conn.Close() })
	return p
}

// dial opens a connection to the server.
func (w *world) dial(transport, local, server string) (conn net.Conn) {
	w.t.Helper()
	port, network := "5060", "tcp"
	var from net.Addr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local))
	switch transport {
	case "UDP":
		network, from = "udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(local))
	case "TLS":
		port = "5061"
	}
	w.ns.Do(w.t, func() (err error) {
		conn, err = (&net.Dialer{LocalAddr: from}).Dial(network, net.JoinHostPort(server, port))
		return err
	})
	if transport == "TLS" {
		conn = tls.Client(conn, &tls.Config{RootCAs: w.roots(), ServerName: domain})
	}
	return conn
}

func (w *world) roots() *x509.CertPool {
	text, err := os.ReadFile(w.path("cert.pem"))
	if err != nil {
		w.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots
}

// at is where the phone is, as URIs have it.
func (p *phone) at() string { return p.conn.LocalAddr().String() }

// contact is its Contact.
func (p *phone) contact() string {
	if p.transport == "UDP" {
		return fmt.Sprintf("<sip:%s@%s>", p.user(), p.at())
	}
	return fmt.Sprintf("<sip:%s@%s;transport=%s>", p.user(), p.at(), strings.ToLower(p.transport))
}

// request makes a request, fields as they stand in it.
func (p *phone) request(method, uri string, fields ...string) *message.Message {
	p.t.Helper()
	p.cseq++
	to := uri
	if method == "REGISTER" {
		to = p.address()
	}
	text := fmt.Sprintf("%[1]s %[2]s SIP/2.0\r\nVia: SIP/2.0/%[3]s %[4]s;branch=z9hG4bK%[5]s-%[6]d;rport\r\nFrom: <%[7]s>;tag=%[5]s\r\nTo: <%[8]s>\r\nCall-ID: %[5]s\r\nCSeq: %[6]d %[1]s\r\nMax-Forwards: 70\r\n",
		method, uri, p.transport, p.at(), p.callID, p.cseq, p.address(), to)
	m, f := message.Parse([]byte(text + strings.Join(append(fields, ""), "\r\n") + "\r\n"))
	if f != nil {
		p.t.Fatalf("%v:\n%s", f, text)
	}
	return m
}

// address is the phone's address of record.
func (p *phone) address() string { return "sip:" + p.user() + "@" + domain }

// user is the part of its name before the @.
func (p *phone) user() string { return strings.TrimSuffix(p.name, "@"+domain) }

func (p *phone) send(m *message.Message) { p.raw(string(m.Append(nil))) }

func (p *phone) raw(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, text); err != nil {
		p.t.Fatal(err)
	}
}

// receive waits for a message.
func (p *phone) receive() *message.Message {
	p.t.Helper()
	m, err := p.next(patience)
	if err != nil {
		p.t.Fatalf("%s hears nothing: %v", p.name, err)
	}
	return m
}

// next is receive with a bound.
func (p *phone) next(limit time.Duration) (*message.Message, error) {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(limit))
	more := make([]byte, 65535)
	for {
		n := len(p.buffer)
		if p.transport != "UDP" {
			ping := false
			if n, ping, _ = message.Frame(p.buffer, message.MaxSize); n > 0 && (ping || n <= 2) {
				p.buffer = p.buffer[n:]
				continue
			}
		}
		if n > 0 {
			m, f := message.Parse(p.buffer[:n])
			if f != nil {
				p.t.Fatalf("%v:\n%s", f, p.buffer)
			}
			p.buffer = p.buffer[n:]
			return m, nil
		}
		got, err := p.conn.Read(more)
		if err != nil {
			return nil, err
		}
		p.buffer = append(p.buffer, more[:got]...)
	}
}

// expect waits for a request of a method, or a response of a status, and passes over provisional
// responses.
func (p *phone) expect(what string) *message.Message {
	p.t.Helper()
	for {
		m := p.receive()
		if m.Method == what || fmt.Sprint(m.Status) == what {
			return m
		}
		if m.IsRequest() || m.Status >= 200 {
			p.t.Fatalf("%s expects %s and gets\n%s", p.name, what, m)
		}
	}
}

// final waits for a final response.
func (p *phone) final() *message.Message {
	p.t.Helper()
	for {
		if m := p.receive(); m.Status >= 200 {
			return m
		}
	}
}

// ask sends a request, answers a challenge, and returns the last request and its final response.
func (p *phone) ask(method, uri string, fields ...string) (request, response *message.Message) {
	p.t.Helper()
	request = p.request(method, uri, fields...)
	p.send(request)
	response = p.final()
	if response.Status == 401 || response.Status == 407 {
		if method == "INVITE" {
			p.acknowledge(request, response)
		}
		request = p.request(method, uri, append(fields, p.answer(response, method, uri))...)
		p.send(request)
		response = p.final()
	}
	return request, response
}

// answer makes the field that answers a challenge.
func (p *phone) answer(response *message.Message, method, uri string) string {
	p.t.Helper()
	challenge, field := "WWW-Authenticate", "Authorization"
	if response.Status == 407 {
		challenge, field = "Proxy-Authenticate", "Proxy-Authorization"
	}
	c, err := digest.ParseChallenge(response.Get(challenge))
	if err != nil {
		p.t.Fatalf("%v:\n%s", err, response)
	}
	password, auts := p.name, ""
	if p.secret != nil {
		password, auts = p.secret(&c)
	}
	p.nonces[c.Nonce]++
	a := c.Answer(p.name, c.Algorithm.HA1(p.name, c.Realm, password), method, uri, "cnonce", p.nonces[c.Nonce])
	a.AUTS = auts
	return field + ": " + a.String()
}

// register registers the phone.
func (p *phone) register(fields ...string) *message.Message {
	p.t.Helper()
	_, r := p.ask("REGISTER", "sip:"+domain, append([]string{"Contact: " + p.contact()}, fields...)...)
	return r
}

// mustRegister wants that to work.
func (p *phone) mustRegister(fields ...string) *message.Message {
	p.t.Helper()
	r := p.register(fields...)
	if r.Status != 200 {
		p.t.Fatalf("%s cannot register:\n%s", p.name, r)
	}
	return r
}

// mustRegisterSecurely registers bob where he is reached by TLS.
func (p *phone) mustRegisterSecurely() {
	p.t.Helper()
	if _, r := p.ask("REGISTER", "sips:"+domain, "Contact: <sips:bob@[2001:db8::2]>"); r.Status != 200 {
		p.t.Fatalf("%s cannot register:\n%s", p.name, r)
	}
}

// reply answers a request.
func (p *phone) reply(m *message.Message, status int) *message.Message {
	p.t.Helper()
	r := message.Reply(m, status, "Reason", "tag-of-"+p.name)
	for _, route := range m.All("Record-Route") {
		r.Add("Record-Route", route)
	}
	r.Add("Contact", p.contact())
	p.send(r)
	return r
}

// acknowledge sends the ACK of a refusal.
func (p *phone) acknowledge(invite, refusal *message.Message) {
	ack := &message.Message{Method: "ACK", URI: invite.URI}
	for _, h := range []string{"Via", "From", "Call-ID"} {
		ack.Add(h, invite.Get(h))
	}
	ack.Add("To", refusal.Get("To"))
	number, _, _ := invite.CSeq()
	ack.Add("CSeq", fmt.Sprintf("%d ACK", number))
	p.send(ack)
}

// call calls an address, with proof, and returns the INVITE and its final response.
func (p *phone) call(uri string, fields ...string) (invite, response *message.Message) {
	p.t.Helper()
	fields = append([]string{"Contact: " + p.contact()}, fields...)
	invite = p.request("INVITE", uri, fields...)
	p.send(invite)
	if challenge := p.final(); challenge.Status == 407 {
		p.acknowledge(invite, challenge)
		invite = p.request("INVITE", uri, append(fields, p.answer(challenge, "INVITE", uri))...)
		p.send(invite)
	} else {
		return invite, challenge
	}
	return invite, nil
}

// inDialog makes a request of the dialog that a response has made for the caller.
func (p *phone) inDialog(method string, ok *message.Message) *message.Message {
	p.t.Helper()
	contact, err := message.ParseAddress(ok.Get("Contact"))
	if err != nil {
		p.t.Fatal(err)
	}
	m := p.request(method, contact.URI.String())
	m.Set("To", ok.Get("To"))
	routes := ok.All("Record-Route")
	for i := len(routes) - 1; i >= 0; i-- {
		m.Add("Route", routes[i])
	}
	return m
}

// back makes a request of the same dialog for the callee, who has got an INVITE and answered it.
func (p *phone) back(method string, invite, ok *message.Message) *message.Message {
	p.t.Helper()
	contact, err := message.ParseAddress(invite.Get("Contact"))
	if err != nil {
		p.t.Fatal(err)
	}
	m := p.request(method, contact.URI.String())
	m.Set("Call-ID", invite.CallID())
	m.Set("From", ok.Get("To"))
	m.Set("To", invite.Get("From"))
	for _, route := range invite.All("Record-Route") {
		m.Add("Route", route)
	}
	return m
}

// closed waits until the server closes the connection, and returns what it says before.
func (p *phone) closed() string {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	text, err := io.ReadAll(p.conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatal("the connection stays open")
	}
	return string(text)
}

// sim makes the phone one with a SIM, which has accepted what the window says.
func (p *phone) sim(window *aka.Window) {
	m := aka.NewMilenage(octets(p.t, "465b5ce8b199b49faa5f0a2ee238a6bc"), octets(p.t, "cd63cb71954a9f4e48a5994e37a02baf"))
	p.secret = func(c *digest.Challenge) (string, string) {
		n, _ := aka.ParseNonce(c.Nonce)
		a, genuine := m.Answer(n.RAND, n.AUTN)
		if !genuine {
			p.t.Fatalf("the challenge is not of the home network: %+v", c)
		}
		if !window.Accept(a.SQN) {
			p.t.Errorf("the number %x was used before", a.SQN)
			return "", m.AUTS(n.RAND, window.Highest()).String()
		}
		return a.Password(), ""
	}
}

func octets(t *testing.T, text string) aka.Key {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return aka.Key(b)
}
