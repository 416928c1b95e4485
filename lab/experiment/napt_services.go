// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// The pages of the web servers: one with pictures, as a browser fetches them.
const (
	webPictures    = 24
	webPictureSize = 20 << 10
)

// serveApplications starts the servers of both hosts.
func (n *appNet) serveApplications(ctx context.Context, e *lab.Env) error {
	root := filepath.Join(n.dir, "www")
	if err := writePages(root); err != nil {
		return err
	}
	for _, host := range []struct {
		node *lab.Node
		name string
		ipv6 bool
	}{{n.host4, "server4", false}, {n.host6, "server6", true}} {
		web, err := peersOf(e).Apache(n.dir, peers.Apache{Name: host.name + "-web", Port: webPort, Root: root})
		if err != nil {
			return err
		}
		inetd, err := peersOf(e).Inetd(n.dir, peers.Inetd{Name: host.name + "-inetd", IPv6: host.ipv6})
		if err != nil {
			return err
		}
		nuttcp, err := peersOf(e).Program("nuttcp")
		if err != nil {
			return err
		}
		family := "-4"
		if host.ipv6 {
			family = "-6"
		}
		for _, c := range []lab.Process{
			{Name: "apache2", Path: web.Path, Args: web.Args},
			{Name: "inetd", Path: inetd.Path, Args: inetd.Args},
			{Name: "nuttcp", Path: nuttcp, Args: []string{"-S", family, "--nofork"}},
		} {
			if _, err := host.node.Start(ctx, c); err != nil {
				return err
			}
		}
		for _, port := range []int{webPort, fingerPort, telnetPort, nuttcpPort} {
			if err := listening(ctx, host.node, port, host.ipv6); err != nil {
				return err
			}
		}
	}
	return n.serveFTP(ctx, e)
}

// serveFTP starts the FTP servers of both hosts. They serve one file and take others into a
// folder.
func (n *appNet) serveFTP(ctx context.Context, e *lab.Env) error {
	root := filepath.Join(n.dir, "ftp")
	up := filepath.Join(root, ftpUploads)
	err := errors.Join(os.MkdirAll(up, 0o755), os.Chown(up, peers.VsftpdUser, peers.VsftpdUser), os.WriteFile(filepath.Join(root, ftpFile), picture(0), 0o644))
	if err != nil {
		return err
	}
	for _, host := range []struct {
		node *lab.Node
		name string
		at   netip.Addr
	}{{n.host4, "server4-ftp", appHost4}, {n.host6, "server6-ftp", appHost6}} {
		c, err := peersOf(e).Vsftpd(n.dir, peers.Vsftpd{Name: host.name, Address: host.at, Root: root})
		if err != nil {
			return err
		}
		if _, err := host.node.Start(ctx, lab.Process{Name: "vsftpd", Path: c.Path, Args: c.Args, Env: c.Env}); err != nil {
			return err
		}
		if err := listening(ctx, host.node, ftpPort, host.at.Is6()); err != nil {
			return err
		}
	}
	return nil
}

// What the FTP server has.
const (
	ftpPort    = 21
	ftpFile    = "file"
	ftpUploads = "up"
)

// tryFTP fetches a file and stores one, in that mode of tnftp.
func tryFTP(mode string) func(context.Context, *appNet, appDirection) error {
	return func(ctx context.Context, n *appNet, d appDirection) error {
		node, to := n.caller(d)
		home, err := os.MkdirTemp(n.dir, "client-")
		if err != nil {
			return err
		}
		client, err := peersOf(n.env).Program("tnftp")
		if err != nil {
			return err
		}
		url := "ftp://" + netip.AddrPortFrom(to, ftpPort).String() + "/"
		from, into := filepath.Join(n.dir, "ftp", ftpFile), filepath.Join(home, "fetched")
		name := filepath.Base(home)
		ctx, cancel := context.WithTimeout(ctx, 2*programLimit)
		defer cancel()
		for _, args := range [][]string{{"-o", into, url + ftpFile}, {"-u", url + ftpUploads + "/" + name, from}} {
			if _, err := node.Run(ctx, append([]string{"env", "HOME=" + home, client, mode}, args...)...); err != nil {
				return err
			}
		}
		for _, file := range []string{into, filepath.Join(n.dir, "ftp", ftpUploads, name)} {
			got, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if !bytes.Equal(got, picture(0)) {
				return fmt.Errorf("a file of %d bytes arrived, and not the one that was sent", len(got))
			}
		}
		return nil
	}
}

// picture is the content of one picture of the page.
func picture(i int) []byte {
	return bytes.Repeat([]byte{byte(i), byte(i >> 1), 0xff}, webPictureSize/3)
}

// writePages makes the folder of a web server.
func writePages(root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	var page strings.Builder
	page.WriteString("<!doctype html><title>isthmus</title>\n")
	var errs []error
	for i := range webPictures {
		name := fmt.Sprintf("picture-%d", i)
		fmt.Fprintf(&page, "<img src=\"/%s\">\n", name)
		errs = append(errs, os.WriteFile(filepath.Join(root, name), picture(i), 0o644))
	}
	errs = append(errs, os.WriteFile(filepath.Join(root, "index.html"), []byte(page.String()), 0o644))
	return errors.Join(errs...)
}

// dialer dials from a node.
func dialer(node *lab.Node) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		e := node.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return nil
		})
		return conn, errors.Join(err, e)
	}
}
