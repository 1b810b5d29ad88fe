// The form for users without a session.
import { post } from "./ask.js";

const form = document.getElementById("login");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await post("dashboard/login", { token: form.elements.token.value });
    location.reload();
  } catch (error) {
    document.getElementById("told").textContent = error.message;
    form.elements.token.select();
  }
});
