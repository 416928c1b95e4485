// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/fetch"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// TestTwentyCuts cuts the two networks in turn while a file is sent, again and again: it arrives with equal hashes, over
// twenty cuts of one association; and what was measured shows them.
func TestTwentyCuts(t *testing.T) {
	w := newWorld(t)
	want := w.file("film", 400_000)
	i := w.serve(quick)
	c := w.mustDial(quickClient(), both)
	s := w.session(i)
	cuts, done := 20, make(chan struct{})
	go func() {
		defer close(done)
		for n := range cuts {
			w.works(c.Conn(), s.conn)
			net := []string{"a", "b"}[n%2]
			w.cut(net, true)
			time.Sleep(300 * time.Millisecond)
			w.cut(net, false)
		}
	}()
	rounds, changes := 0, 0
	var clocks measure.Clocks
	for over := false; !over; rounds++ {
		select {
		case <-done:
			over = true // and once more without
		default:
		}
		got, r := w.mustGet(c, transfer.Request{Name: "film", Rate: 300, Report: 50})
		if !bytes.Equal(got, want) {
			t.Fatal("another file has come")
		}
		for _, f := range r.Failovers {
			changes++
			if f.First > 0 && f.New >= f.First {
				clocks = f.Clocks
			}
		}
	}
	t.Logf("%d rounds, %d changes of path", rounds, changes)
	if changes < cuts/2 || clocks.First == 0 {
		t.Errorf("%d changes of path were seen, clocks %+v", changes, clocks)
	}
	if n := i.counters.done.Load(); n != uint64(rounds) {
		t.Errorf("%d transfers are counted of %d", n, rounds)
	}
}

// TestGet gets files and synthetic sources, whole and in part, and lists them.
func TestGet(t *testing.T) {
	w := newWorld(t)
	film := w.file("films/one", 300_001)
	w.file("empty", 0)
	for n := range 100 {
		w.file("many/"+strings.Repeat("x", 150)+string(rune('a'+n%26))+string(rune('a'+n/26)), n)
	}
	i := w.serve("[[sctp_media.source]]\nname = \"voice\"\noctets = 16000\nrate = 2000\n")
	c := w.mustDial(quickClient(), both)
	got, r := w.mustGet(c, transfer.Request{Name: "films/one"})
	if !bytes.Equal(got, film) || r.Octets != 300_001 || r.Messages != 251 || r.Streams != 4 || r.Chunks < 251 {
		t.Errorf("%+v", r)
	}
	if got, r = w.mustGet(c, transfer.Request{Name: "films/one", Offset: 1000, Limit: 50_000, Size: 10_000, Streams: 2}); !bytes.Equal(got, film[1000:51_000]) || r.Messages != 5 || r.Streams != 2 {
		t.Errorf("a part: %+v", r)
	}
	if got, _ = w.mustGet(c, transfer.Request{Name: "empty"}); len(got) != 0 {
		t.Errorf("%d octets of nothing", len(got))
	}
	voice, r := w.mustGet(c, transfer.Request{Name: "voice", Report: 20})
	if len(voice) != 16000 || r.Messages != 100 || r.Sender.Sent == 0 || r.DelayMin <= 0 || r.DelayMax < r.DelayMean {
		t.Errorf("%+v", r)
	}
	if again, _ := w.mustGet(c, transfer.Request{Name: "voice", Offset: 160}); !bytes.Equal(again, voice[160:]) {
		t.Error("the source is another now")
	}
	list, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list); n != 103 || list[0].Name != "empty" || list[n-1] != (transfer.Entry{Name: "voice", Octets: 16000, Rate: 2000}) {
		t.Errorf("%d are listed: %+v", n, list)
	}
	if st := i.Status().(Status); st.State != "serving" || st.Sessions != 1 || i.list().List[0].Paths < 2 {
		t.Errorf("%+v, %+v", st, i.list())
	}
}

// TestRefusals: nothing outside of the folder is sent, nor what is no file; each refusal has its counter.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.file("large", 2000)
	w.file("small", 10)
	w.file(".hidden", 10)
	secret := filepath.Join(t.TempDir(), "secret")
	err := errors.Join(os.WriteFile(secret, []byte("x"), 0o644), os.Symlink(secret, filepath.Join(w.root, "out")),
		os.Symlink("small", filepath.Join(w.root, "in")), os.Symlink(filepath.Dir(secret), filepath.Join(w.root, "folder")), os.Mkdir(filepath.Join(w.root, "sub"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	i := w.serve("max_file_size = 1000\n")
	c := w.mustDial(quickClient(), both)
	for _, tt := range []struct {
		name   string
		offset uint64
		why    string
	}{
		{"none", 0, "not_found"}, {"out", 0, "not_found"}, {"folder/secret", 0, "not_found"}, {"sub", 0, "not_found"},
		{"large", 0, "too_large"}, {"small", 11, "refused"},
	} {
		before := dropped(i, tt.why)
		if _, _, err := w.get(c, transfer.Request{Name: tt.name, Offset: tt.offset}); !errors.Is(err, fetch.ErrRefused) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if dropped(i, tt.why) != before+1 {
			t.Errorf("%s is not counted as %s", tt.name, tt.why)
		}
	}
	if got, _ := w.mustGet(c, transfer.Request{Name: "in"}); len(got) != 10 {
		t.Error("a link within the folder is not sent")
	}
	list, err := c.List(t.Context())
	if names := []string{}; err == nil {
		for _, e := range list {
			names = append(names, e.Name)
		}
		if !slices.Equal(names, []string{"in", "small"}) {
			t.Errorf("listed are %q", names)
		}
	} else {
		t.Error(err)
	}
	for _, name := range []string{"../" + filepath.Base(secret), "/etc/passwd", ".hidden", "sub/../small"} {
		c := w.mustDial(quickClient(), both)
		before := dropped(i, "bad_message")
		if _, _, err := w.get(c, transfer.Request{Name: name}); err == nil {
			t.Errorf("%s is sent", name)
		}
		if dropped(i, "bad_message") != before+1 {
			t.Errorf("%s is not counted", name)
		}
	}
}

// TestBusyAndCancel: one transfer of an association at a time; one that is cancelled ends, and the association serves on.
func TestBusyAndCancel(t *testing.T) {
	w := newWorld(t)
	w.file("small", 10)
	i := w.serve("[[sctp_media.source]]\nname = \"endless\"\nrate = 100\n")
	c := w.mustDial(quickClient(), both)
	for n, m := range []transfer.Message{&transfer.Request{Transfer: 900, Name: "endless"}, &transfer.Request{Transfer: 901, Name: "small"}} {
		if err := c.Conn().WriteMessage(m.Append(nil), control); err != nil {
			t.Fatal(n, err)
		}
	}
	w.until(func() bool { return dropped(i, "busy") == 1 })
	if err := c.Conn().WriteMessage((&transfer.Cancel{Transfer: 900}).Append(nil), control); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { return i.counters.cancelled.Load() == 1 && w.session(i).sending() == nil })
	other := w.mustDial(quickClient(), both)
	w.mustGet(other, transfer.Request{Name: "small"})
}

// TestClientGoes: a transfer whose client has gone was not cancelled by it.
func TestClientGoes(t *testing.T) {
	w := newWorld(t)
	i := w.serve("[[sctp_media.source]]\nname = \"endless\"\nrate = 100\n")
	c := w.mustDial(quickClient(), both)
	if err := c.Conn().WriteMessage((&transfer.Request{Transfer: 1, Name: "endless"}).Append(nil), control); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { return i.Status().(Status).Transfers == 1 })
	c.Abort()
	w.until(func() bool { return dropped(i, "association_ended") == 1 })
	if n := i.counters.cancelled.Load(); n != 0 {
		t.Errorf("%d transfers are counted as cancelled", n)
	}
}

// TestNoReports: who wants none gets none at the end either.
func TestNoReports(t *testing.T) {
	w := newWorld(t)
	w.file("film", 10_000)
	w.serve("")
	c := w.mustDial(quickClient(), both)
	for _, every := range []uint32{0, 1000} {
		if _, r := w.mustGet(c, transfer.Request{Name: "film", Report: every}); (r.Sender.Sent > 0) != (every > 0) {
			t.Errorf("reports each %d ms: %+v", every, r.Sender)
		}
	}
}

// TestReloadWhileInUse: a folder that the settings name no more stays open for who looks into it.
func TestReloadWhileInUse(t *testing.T) {
	w := &world{t: t, root: t.TempDir()}
	w.file("film", 10)
	i, err := New(*w.settings(""), discard)
	if err != nil {
		t.Fatal(err)
	}
	if i.catalog, err = openCatalog(&i.cfg); err != nil {
		t.Fatal(err)
	}
	c := i.useCatalog()
	roletest.MustReload(t, Role, i, i.now(), *w.settings("max_file_size = 20\n"))
	defer i.catalog.close()
	there := func() bool {
		m, status := c.open("film")
		if status == transfer.OK {
			_ = m.Close()
		}
		return status == transfer.OK
	}
	if !there() {
		t.Error("it is closed")
	}
	c.users.Done()
	w.until(func() bool { return !there() })
}

// TestCancelAtTheEnd cancels transfers that are over at about that time: each has its end, and the association serves on.
func TestCancelAtTheEnd(t *testing.T) {
	w := newWorld(t)
	w.file("small", 10)
	w.serve("")
	c := w.mustDial(quickClient(), both)
	if err := c.Conn().SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, transfer.MaxControl)
	for n := range uint16(500) {
		request, cancel := &transfer.Request{Transfer: 1000 + n, Name: "small"}, &transfer.Cancel{Transfer: 1000 + n}
		err := c.Conn().WriteMessage(request.Append(nil), control)
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		if err = errors.Join(err, c.Conn().WriteMessage(cancel.Append(nil), control)); err != nil {
			t.Fatal(err)
		}
		for ended := false; !ended; {
			size, _, err := c.Conn().ReadMessage(b)
			if err != nil {
				t.Fatalf("transfer %d has no end: %v", n, err)
			}
			m, err := transfer.Parse(b[:size])
			if err != nil {
				t.Fatal(err)
			}
			end, is := m.(*transfer.End)
			ended = is && end.Transfer == request.Transfer
		}
	}
	w.mustGet(c, transfer.Request{Name: "small"})
}

// TestUnfinished: of what does not come nothing is left, and a file that another transfer is writing is not touched.
func TestUnfinished(t *testing.T) {
	w := newWorld(t)
	want := w.file("film", 3000)
	w.serve("")
	name := filepath.Join(t.TempDir(), "out")
	get := func(source string) error {
		g := &Get{Name: source, Output: name}
		g.reached = reached{Server: both, IPv6: true, Local: ":0", Timeout: time.Minute, Tuning: w.settings(quick).Tuning}
		var err error
		w.client.Do(t, func() error { err = g.Run(t.Context(), role.Screen{Out: io.Discard, Err: io.Discard}); return nil })
		return err
	}
	if err := get("none"); !errors.Is(err, fetch.ErrRefused) {
		t.Errorf("a source that there is not: %v", err)
	}
	if _, err := os.Stat(name + unfinished); err == nil {
		t.Error("a file without octets is left")
	}
	other, err := (&Get{Output: name}).output(role.Screen{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Write([]byte("the first octets")); err != nil {
		t.Fatal(err)
	}
	if err := get("film"); err == nil || !strings.Contains(err.Error(), "is being written by another") {
		t.Errorf("two transfers write the same file: %v", err)
	}
	if b, err := os.ReadFile(name + unfinished); string(b) != "the first octets" {
		t.Errorf("the other's file has %q, %v", b, err)
	}
	if err := other.finish(false); err != nil {
		t.Error(err)
	}
	if err := get("film"); err != nil {
		t.Errorf("what was left of one that has ended is in the way: %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, want) {
		t.Errorf("another file has come: %v", err)
	}
}

// atWrite does something when it is written to.
type atWrite func()

func (f atWrite) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// TestNetworkGoesAtTheEnd: what has come whole has its name, whatever becomes of the association and of the capture then.
func TestNetworkGoesAtTheEnd(t *testing.T) {
	w := newWorld(t)
	want := w.file("film", 3000)
	w.serve(quick)
	g := &Get{Name: "film", Output: filepath.Join(t.TempDir(), "out"), Pcapng: "/dev/full"}
	g.reached = reached{Server: both, IPv6: true, Local: ":0", Timeout: time.Minute, Tuning: w.settings(quick + "association_max_retrans = 1\n").Tuning}
	shown := atWrite(func() {
		w.cut("a", true)
		w.cut("b", true)
	})
	var warnings bytes.Buffer
	err := <-w.client.Go(func() error { return g.Run(t.Context(), role.Screen{Out: shown, Err: &warnings}) })
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(warnings.String(), "has not confirmed the end") {
		t.Errorf("the warnings are %q", warnings.String())
	}
	if b, err := os.ReadFile(g.Output); err != nil || !bytes.Equal(b, want) {
		t.Errorf("what has come: %v", err)
	}
}

// TestNobodyAnswers says so, and what to look at.
func TestNobodyAnswers(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // no one reads there
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	w := &world{t: t, root: t.TempDir()}
	server := fmt.Sprintf("127.0.0.1:5000/%d", silent.LocalAddr().(*net.UDPAddr).Port)
	l := &List{reached{Server: server, Local: ":0", Timeout: 50 * time.Millisecond, Tuning: w.settings("").Tuning}}
	if err := l.Run(t.Context(), role.Screen{Out: io.Discard}); err == nil || !strings.HasPrefix(err.Error(), "nobody at "+server+" has answered for 50ms: see that") {
		t.Errorf("error %v", err)
	}
}

// TestNamedStrangers: an address that a client has named, and by which it does not answer, is not counted as the client's.
func TestNamedStrangers(t *testing.T) {
	w := newWorld(t)
	w.client.Do(t, func() error { // no answer finds the way back there
		l, err := netlink.LinkByName("ca")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr("2001:db8:66::a/64")
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		return netlink.AddrAdd(l, a)
	})
	w.file("film", 10)
	i := w.serve("")
	c := quickClient()
	c.Local = "[2001:db8:1::a]/[2001:db8:66::a]:0"
	w.mustGet(w.mustDial(c, both), transfer.Request{Name: "film"})
	s := w.session(i)
	if hosts := s.conn.RemoteAddr().(*sctp.Addr).Hosts; len(hosts) != 2 {
		t.Fatalf("the client has named %v", hosts)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.peers) != 1 || i.peers[netip.MustParsePrefix("2001:db8:1::/64")] != 1 {
		t.Errorf("counted are %v", i.peers)
	}
}

// TestCommand runs the command over a cut: the file has its name, tables and capture tell of the change.
func TestCommand(t *testing.T) {
	w := newWorld(t)
	want := w.file("film", 800_000)
	i := w.serve(quick)
	dir := t.TempDir()
	g := &Get{Name: "film", Output: filepath.Join(dir, "out"), CSV: filepath.Join(dir, "csv"), Pcapng: filepath.Join(dir, "packets.pcapng"), Rate: 100, Report: 50 * time.Millisecond, Every: 100 * time.Millisecond}
	g.reached = reached{Server: both, IPv6: true, Local: ":0", Timeout: time.Minute, Tuning: w.settings(quick).Tuning}
	var out, progress bytes.Buffer
	ended := w.client.Go(func() error { return g.Run(t.Context(), role.Screen{Out: &out, Err: &progress}) })
	s := w.session(i)
	w.works(s.conn)
	w.cut("a", true)
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	got, err := os.ReadFile(g.Output)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("another file has come: %v", err)
	}
	t.Logf("%s\n%s", progress.String(), out.String())
	for _, what := range []string{"SHA-256", "throughput", "path changes", "gap", "RTO 100ms"} {
		if !strings.Contains(out.String(), what) {
			t.Errorf("nothing is said of %s", what)
		}
	}
	rows := map[string]string{"tsn": "2001:db8:2::a", "messages": "\n", "paths": "active", "marks": "first new", "failovers": "2001:db8:1::a", "rate": "octets"}
	for name, want := range rows {
		b, err := os.ReadFile(filepath.Join(g.CSV, name+".csv"))
		if err != nil || !strings.Contains(string(b), want) || name != "rate" && bytes.Count(b, []byte("\n")) < 2 {
			t.Errorf("%s.csv: %v\n%.300s", name, err, b)
		}
	}
	summary := readTable(t, filepath.Join(g.CSV, "summary.csv"))
	for column, least := range map[string]float64{"octets": float64(len(want)), "chunks": 100, "longest_gap_ms": 10, "sent": 100, "retransmitted_percent": 0.001} {
		if v, err := strconv.ParseFloat(summary[column], 64); err != nil || v < least {
			t.Errorf("the summary has %q as %s", summary[column], column)
		}
	}
	verify := []string{"-o", "sctp.checksum:CRC 32c", "-o", "udp.check_checksum:TRUE", "-T", "fields"}
	if text := tsharktest.Run(t, g.Pcapng, append(verify, "-Y", "_ws.malformed or sctp.checksum.status == 0 or udp.checksum.status == 0", "-e", "frame.number")...); text != "" {
		t.Errorf("tshark complains of packets\n%s", text)
	}
	if n := strings.Count(tsharktest.Run(t, g.Pcapng, append(verify, "-Y", "sctp.data_payload_proto_id == 0x49534d54", "-e", "sctp.data_tsn_raw")...), "\n"); n < len(want)/1500 {
		t.Errorf("tshark reads %d packets of data", n)
	}
	if err := g.Run(t.Context(), role.Screen{Out: io.Discard, Err: io.Discard}); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("the file is replaced: %v", err)
	}
}

// readTable reads the one row of a table, by its columns.
func readTable(t *testing.T, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil || len(lines) != 2 {
		t.Fatalf("%v\n%s", err, b)
	}
	row := map[string]string{}
	for i, column := range lines[0] {
		row[column] = lines[1][i]
	}
	return row
}
