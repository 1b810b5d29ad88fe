//! A client that uses the suppaftp library, for `conformance/clients.py`. It uploads, lists,
//! downloads, renames and deletes files.
//!
//! `suppaftp HOST PORT USER PASSWORD FOLDER active|passive plain|tls LOCAL BACK`
#![allow(clippy::disallowed_methods, reason = "a client in real time")]

use std::{fs, fs::File, io, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use suppaftp::{
    FtpStream, ImplFtpStream, Mode, RustlsConnector, RustlsFtpStream, TlsStream, types::FileType,
};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, user, password, folder, way, tls, local, back] = arguments.as_slice() else {
        anyhow::bail!("expected nine arguments");
    };
    let address = format!("{host}:{port}");
    let files = (folder.as_str(), local.as_str(), back.as_str());
    let login = (user.as_str(), password.as_str());
    if tls == "tls" {
        let stream = RustlsFtpStream::connect(address)?;
        let connector = RustlsConnector::from(Arc::new(trusting()?));
        drive(stream.into_secure(connector, host)?, way, login, files)
    } else {
        drive(FtpStream::connect(address)?, way, login, files)
    }
}

fn drive<T: TlsStream>(
    ftp: ImplFtpStream<T>,
    way: &str,
    (user, password): (&str, &str),
    (folder, local, back): (&str, &str, &str),
) -> anyhow::Result<()> {
    let mut ftp = match way {
        "active" => ftp.active_mode(Duration::from_secs(20)),
        _ => ftp,
    };
    if way != "active" {
        ftp.set_mode(Mode::Passive);
    }
    ftp.login(user, password).context("login")?;
    ftp.cwd(folder).context("CWD")?;
    ftp.transfer_type(FileType::Binary).context("TYPE")?;
    let content = fs::read(local)?;
    ftp.put_file("up", &mut content.as_slice())
        .context("upload")?;
    let names = ftp.nlst(None).context("NLST")?;
    ensure!(names.iter().any(|name| name.ends_with("up")), "listing");
    ensure!(ftp.size("up").context("SIZE")? == content.len(), "size");
    ftp.mdtm("up").context("MDTM")?;
    let mut file = File::create(back)?;
    let mut stream = ftp.retr_as_stream("up").context("RETR")?;
    io::copy(&mut stream, &mut file).context("download")?;
    stream.finish().context("the end of the download")?;
    ftp.rename("up", "renamed").context("rename")?;
    ftp.rm("renamed").context("delete")?;
    ftp.quit().context("QUIT")
}

/// Certificate verifier that accepts every certificate, since the tests use self-signed
/// certificates.
#[derive(Debug)]
struct Trusting;

fn trusting() -> anyhow::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    Ok(config
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth())
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
